/* Preloaded into a rank: its MPI says that it takes device memory, as one built with CUDA does; the rank that
   FAKE_UNAWARE_RANK names has another MPI.  With the fake driver that is true: its device memory is host memory.

   With FAKE_MPI_MINDS it also minds what a real one does: once a message lies in device memory, any call may go on with
   it, and needs the context of the GPU on its thread.  Large messages are taken for such. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN __attribute__((visibility("default")))

SEEN int MPIX_Query_cuda_support(void) {
  const char* other = getenv("FAKE_UNAWARE_RANK");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  return !(other && rank && strcmp(other, rank) == 0);
}

/* Open MPI 4's switch for that is off in a build without CUDA, and cannot be set; nobody finds it, unless
   FAKE_SWITCHED_OFF is there. */
SEEN int MPI_T_cvar_get_index(const char* name, int* index) {
  int (*real)(const char*, int*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_T_cvar_get_index");
  return real && getenv("FAKE_SWITCHED_OFF") ? real(name, index) : 1;
}

static int on_device = 0; /* the caller has one thread in MPI at a time */

static void mind(const char* call, int bytes) {
  if (!getenv("FAKE_MPI_MINDS")) return;
  on_device |= bytes > 65536;
  if (!on_device) return;
  void* driver = dlopen(getenv("HVD_CUDA_LIBRARY"), RTLD_NOW);
  int (*device_of_context)(int*);
  *(void**)&device_of_context = dlsym(driver, "cuCtxGetDevice");
  int device = 0;
  if (device_of_context(&device) != 0) {
    fprintf(stderr, "%s: no context is current\n", call);
    abort();
  }
  dlclose(driver);
}

/* Handles are pointers in Open MPI, and only handed on. */
SEEN int MPI_Isend(const void* data, int bytes, void* type, int to, int tag, void* comm, void* request) {
  mind("MPI_Isend", bytes);
  int (*real)(const void*, int, void*, int, int, void*, void*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_Isend");
  return real(data, bytes, type, to, tag, comm, request);
}
SEEN int MPI_Irecv(void* data, int bytes, void* type, int from, int tag, void* comm, void* request) {
  mind("MPI_Irecv", bytes);
  int (*real)(void*, int, void*, int, int, void*, void*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_Irecv");
  return real(data, bytes, type, from, tag, comm, request);
}
SEEN int MPI_Test(void* request, int* done, void* status) {
  mind("MPI_Test", 0);
  int (*real)(void*, int*, void*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_Test");
  return real(request, done, status);
}
SEEN int MPI_Iprobe(int from, int tag, void* comm, int* there, void* status) {
  mind("MPI_Iprobe", 0);
  int (*real)(int, int, void*, int*, void*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_Iprobe");
  return real(from, tag, comm, there, status);
}
SEEN int MPI_Recv(void* data, int bytes, void* type, int from, int tag, void* comm, void* status) {
  mind("MPI_Recv", 0);
  int (*real)(void*, int, void*, int, int, void*, void*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_Recv");
  return real(data, bytes, type, from, tag, comm, status);
}
