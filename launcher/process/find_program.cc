#include "launcher/process/find_program.h"

#include <unistd.h>

#include "base/text.h"

namespace hvd::launcher {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::string find_program(const std::string& name, const std::string& search_path) {
  for (const std::string& folder : split(search_path, ':')) {
    if (folder.empty()) continue;
    const fs::path path = fs::path(folder) / name;
    if (is_program(path)) return fs::absolute(path);
  }
  return {};
}

}  // namespace hvd::launcher
