#include "launcher/control/job_folder.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"

namespace hvd::launcher {

namespace {

constexpr std::string_view prefix = "hvdrun-";
constexpr std::size_t most_socket_path_bytes = 107, most_name_bytes = 40;  // sockaddr_un; "/hvdrun-…/commands.sock"

}  // namespace

JobFolder::JobFolder() {
  std::string why = "no place for one";
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const char* parent = *name ? environment_value(name) : "/tmp";
    if (!parent || parent[0] != '/' || std::string_view(parent).size() + most_name_bytes > most_socket_path_bytes)
      continue;
    try {
      folder_ = std::make_unique<OwnFolder>(parent, prefix, ::getpid());
      sweep_own_folders(parent, prefix);
      return;
    } catch (const Error& e) { why = e.what(); }
  }
  throw Error(Code::unavailable, "", "no folder for the job can be made: " + why,
              "set TMPDIR to a folder that can be written");
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
