#include "launcher/job/result_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files/own_file.h"

namespace hvd::launcher {

void need_result_files(const Settings& settings) {
  namespace fs = std::filesystem;
  for (const char* id : {"verdict-filename", "report-filename", "metrics"}) {
    const Setting* given = settings.find(id);
    if (!given || given->value.empty()) continue;
    std::error_code unknown;  // of a path without access: access() names it
    const fs::path file(given->value), folder = file.has_parent_path() ? file.parent_path() : ".";
    if (fs::is_directory(file, unknown))
      throw Error(Code::usage, given->where, "'" + given->value + "' is a folder", "name a file in it");
    const bool special = fs::exists(file, unknown) && !fs::is_regular_file(file, unknown);  // a device, a pipe
    if (!special && ::access(folder.c_str(), W_OK | X_OK) != 0)
      throw Error(Code::usage, given->where,
                  "'" + given->value + "' cannot be written: " + folder.string() + ": " + std::strerror(errno),
                  "make the folder, or name another one");
    try {
      need_own_path(given->value);
    } catch (const Error& e) {
      throw Error(Code::usage, given->where, std::string("cannot write ") + e.what(), e.hint);
    }
  }
}

}  // namespace hvd::launcher
