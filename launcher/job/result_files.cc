#include "launcher/job/result_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files/own_file.h"

namespace hvd::launcher {

namespace fs = std::filesystem;

ResultPipes need_result_files(const Settings& settings) {
  ResultPipes pipes;
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
    try {
      if (Fd pipe = hold_fifo(given->value)) pipes.open.push_back(std::move(pipe));
    } catch (const Error& e) {
      pipes.remarks.push_back(given->where + ": " + e.what() + "; start its reader before the job ends");
    }
  }
  return pipes;
}

void need_state_folder(const Settings& settings) {
  const Setting* given = settings.find("state-dir");
  if (!given || given->value.empty()) return;
  std::error_code unknown;
  fs::path there(given->value);  // the rank makes a missing folder in the last one that exists
  while (!there.empty() && !fs::exists(there, unknown) && there != there.parent_path()) there = there.parent_path();
  if (there.empty()) there = ".";
  const bool is_folder = fs::is_directory(there, unknown);
  if (is_folder && ::access(there.c_str(), W_OK | X_OK) == 0) return;
  throw Error(Code::usage, given->where,
              "'" + given->value + "' cannot keep the state: " + there.string() + ": " +
                  std::strerror(is_folder ? errno : ENOTDIR),
              "name a folder that can be written");
}

}  // namespace hvd::launcher
