#include "api/mpi_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/environment.h"
#include "base/error.h"

namespace hvd::api {
namespace {

using OpenFn = transport::Transport* (*)(const int* ranks, int count, int threads, char* error,
                                         std::size_t error_bytes);
using FinalizeFn = void (*)();

void* loaded = nullptr;

std::filesystem::path here() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&MpiPlugin::launched), &info) == 0 || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

std::string load() {
  if (loaded) return {};
  // The plugin's code is linked into the program, as in hvd-bench.
  if (dlsym(RTLD_DEFAULT, "hvd_mpi_open")) {
    loaded = dlopen(nullptr, RTLD_NOW);
    return {};
  }
  // RTLD_GLOBAL also applies to libmpi: Open MPI's own plugins look for its symbols in the global scope.
  const std::filesystem::path path = here() / "libhvd_mpi.so";
  loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (loaded) return {};
  const char* why = dlerror();
  return why ? why : "unknown";
}

}  // namespace

bool MpiPlugin::launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (environment_value(name)) return true;
  return false;
}

bool MpiPlugin::present() {
  std::error_code ignored;
  return loaded || std::filesystem::exists(here() / "libhvd_mpi.so", ignored);
}

std::unique_ptr<transport::Transport> MpiPlugin::open(const int* ranks, int count, bool threads) {
  if (const std::string why = load(); !why.empty())
    throw Error(Code::unavailable, "MPI", "cannot load it: " + why,
                "pip install 'hvdrun[mpi]', or put the lib folder of an Open MPI in LD_LIBRARY_PATH");
  auto* open = reinterpret_cast<OpenFn>(dlsym(loaded, "hvd_mpi_open"));
  if (!open) throw Error(Code::internal, "libhvd_mpi.so", "is not of this version");
  char error[512] = "";
  transport::Transport* t = open(ranks, count, threads, error, sizeof error);
  if (!t) throw Error(Code::unavailable, "MPI", error);
  return std::unique_ptr<transport::Transport>(t);
}

void MpiPlugin::finalize() {
  if (!loaded) return;
  if (auto* f = reinterpret_cast<FinalizeFn>(dlsym(loaded, "hvd_mpi_finalize"))) f();
}

}  // namespace hvd::api
