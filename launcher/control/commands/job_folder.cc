#include "launcher/control/commands/job_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/own_file.h"
#include "base/format.h"

namespace hvd::launcher {

namespace {

constexpr std::string_view prefix = "hvdrun-";
constexpr std::size_t room_bytes = 4096;
constexpr std::size_t most_socket_path_bytes = 107, most_name_bytes = 40;  // sockaddr_un; "/hvdrun-…/commands.sock"

/// Throws Error.  Success does not prove that a file has room: a folder can be made on a full disk too.
void check_room(const std::string& folder) {
  const std::string path = folder + "/room";
  const Fd file = open_own_file(path, WriteMode::truncate, 0600);
  if (!write_all(file.get(), std::string(room_bytes, ' ')))
    throw Error(Code::unavailable, folder, "cannot be written to: " + errno_text(errno));
  ::unlink(path.c_str());
}

}  // namespace

JobFolder::JobFolder() {
  std::string why = "no place for one";
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const char* parent = *name ? environment_value(name) : "/tmp";
    if (!parent || parent[0] != '/' || std::string_view(parent).size() + most_name_bytes > most_socket_path_bytes)
      continue;
    try {
      auto folder = std::make_unique<OwnFolder>(parent, prefix, ::getpid());
      check_room(folder->path());
      folder_ = std::move(folder);
      sweep_own_folders(parent, prefix);
      return;
    } catch (const Error& e) { why = e.what(); }
  }
  throw Error(Code::unavailable, "", "no folder for the job can be made: " + why,
              why.ends_with(errno_text(EFBIG)) ? "raise the limit on the size of files: ulimit -f unlimited"
                                               : "set TMPDIR to a folder that can be written and has room");
}

std::vector<LivingFolder> folders_of_jobs() {
  std::vector<std::string> usual{"/tmp", formatted("/run/user/{}", ::geteuid())};
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"})
    if (const char* value = environment_value(name); value && value[0] == '/') usual.emplace_back(value);
  std::set<std::string> parents;
  std::error_code error;
  for (const std::string& parent : usual)
    if (const auto path = std::filesystem::canonical(parent, error); !error) parents.insert(path);
  std::vector<LivingFolder> found;
  for (const std::string& parent : parents)
    for (LivingFolder& folder : living_folders(parent, prefix)) found.push_back(std::move(folder));
  return found;
}

}  // namespace hvd::launcher
