#include "transport/mpi/gpu_aware.h"

#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace hvd::transport {
namespace {

/// Open MPI 4's function tells how it was built.  Its parameter opal_cuda_support may be off nevertheless, and is in
/// conda's package: device memory would crash it then.  (5's function looks itself whether CUDA is in use.)
bool switched_off() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, provided = 0, index = 0, count = 0;
  if (MPI_Get_library_version(version, &length) != MPI_SUCCESS || std::strncmp(version, "Open MPI v4", 11) != 0)
    return false;
  if (MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) return false;
  unsigned char value[64] = {};  // a bool or an int
  MPI_T_cvar_handle handle{};
  bool known = MPI_T_cvar_get_index("opal_cuda_support", &index) == MPI_SUCCESS &&
               MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS;
  if (known) {
    known = MPI_T_cvar_read(handle, value) == MPI_SUCCESS;
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return known && std::all_of(std::begin(value), std::end(value), [](unsigned char byte) { return byte == 0; });
}

}  // namespace

bool mpi_takes_device_memory() {
  // Open MPI 2 and later, and MPICH, see MPIX_Query_cuda_support(3).
  if (auto* ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support")))
    return ask() == 1 && !switched_off();
  // MPICH 4 and its kin; MPIX_GPU_SUPPORT_CUDA is 0 there.
  int supported = 0;
  if (auto* ask = reinterpret_cast<int (*)(int, int*)>(dlsym(RTLD_DEFAULT, "MPIX_GPU_query_support")))
    return ask(0, &supported) == MPI_SUCCESS && supported != 0;
  return false;
}

}  // namespace hvd::transport
