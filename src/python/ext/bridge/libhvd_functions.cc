#include "libhvd_functions.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "options/variable.h"

namespace hvd::bridge {

RuntimeFunctions runtime;

std::string find_runtime() {
  const char* named = options::value_of("HVD_LIBRARY");
  std::string path = named ? named : "";
  if (path.empty()) {
    Dl_info info{};
    if (dladdr(&runtime, &info) != 0 && info.dli_fname)
      path = std::filesystem::path(info.dli_fname).parent_path() / "libhvd.so";
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    return std::string("cannot load libhvd: ") + (why ? why : path.c_str());
  }
  std::string missing;
  const auto find = [&](const char* name, void* slot) {
    if (void* symbol = dlsym(library, name))
      std::memcpy(slot, &symbol, sizeof symbol);
    else
      missing = name;
  };
  find("hvd_get_world", &runtime.get_world);
  find("hvd_submit_many", &runtime.submit_many);
  find("hvd_notify", &runtime.notify);
  find("hvd_poll", &runtime.poll);
  find("hvd_wait", &runtime.wait);
  find("hvd_take", &runtime.take);
  find("hvd_take_splits", &runtime.take_splits);
  find("hvd_set_get", &runtime.set_get);
  find("hvd_free", &runtime.free);
  find("hvd_release", &runtime.release);
  find("hvd_part_begin", &runtime.part_begin);
  find("hvd_part_end", &runtime.part_end);
  find("hvd_last_error", &runtime.last_error);
  return missing.empty() ? "" : path + " lacks " + missing + ": it belongs to another version of hvdrun";
}

int canonical_code(int hvd_status) {
  switch (hvd_status) {
    case HVD_OK:
      return 0;
    case HVD_USAGE:
      return 3;  // invalid argument
    case HVD_MISMATCH:
      return 9;  // failed precondition, as in Horovod's ops
    case HVD_UNAVAILABLE:
      return 14;
    case HVD_PEER_LOST:
      return 10;  // aborted
    case HVD_TIMEOUT:
      return 4;  // deadline exceeded
    default:
      return 2;  // unknown
  }
}

}  // namespace hvd::bridge
