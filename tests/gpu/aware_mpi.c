/* Preloaded into a rank: its MPI says that it takes device memory, as one built with CUDA does; the rank that
   FAKE_UNAWARE_RANK names has another MPI.  With the fake driver that is true: its device memory is host memory. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int MPIX_Query_cuda_support(void) {
  const char* other = getenv("FAKE_UNAWARE_RANK");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  return !(other && rank && strcmp(other, rank) == 0);
}

/* Open MPI 4's switch for that is off in a build without CUDA, and cannot be set; nobody finds it, unless
   FAKE_SWITCHED_OFF is there. */
__attribute__((visibility("default"))) int MPI_T_cvar_get_index(const char* name, int* index) {
  int (*real)(const char*, int*);
  *(void**)&real = dlsym(RTLD_NEXT, "MPI_T_cvar_get_index");
  return real && getenv("FAKE_SWITCHED_OFF") ? real(name, index) : 1;
}
