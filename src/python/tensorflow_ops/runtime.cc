#include "runtime.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tf_api.h"

namespace hvd::tensorflow {

Runtime runtime;

std::string find_runtime() {
  const char* named = std::getenv("HVD_LIBRARY");
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
  find("hvd_wait", &runtime.wait);
  find("hvd_take", &runtime.take);
  find("hvd_take_splits", &runtime.take_splits);
  find("hvd_set_get", &runtime.set_get);
  find("hvd_free", &runtime.free);
  find("hvd_release", &runtime.release);
  find("hvd_last_error", &runtime.last_error);
  return missing.empty() ? "" : path + " lacks " + missing + ": it belongs to another version of hvdrun";
}

int tf_code(int hvd_status) {
  switch (hvd_status) {
    case HVD_OK:
      return tf_ok;
    case HVD_USAGE:
      return tf_invalid_argument;
    case HVD_MISMATCH:
      return tf_failed_precondition;  // as Horovod's ops say it
    case HVD_UNAVAILABLE:
      return tf_unavailable;
    case HVD_PEER_LOST:
      return tf_aborted;
    case HVD_TIMEOUT:
      return tf_deadline_exceeded;
    default:
      return tf_unknown;
  }
}

}  // namespace hvd::tensorflow
