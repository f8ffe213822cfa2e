#include "base/leftovers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>

#include "base/text.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

constexpr auto between_looks = std::chrono::milliseconds(20);

/// vader_segment.HOST.UID.JOB.RANK (Open MPI 4), sm_segment.… (5), hvd.PID.NUMBER (libhvd, until all have it open).
bool is_ours(const std::string& name) {
  static const std::string owner = [] {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string full = host;
    return full.substr(0, full.find('.'));
  }();
  const std::vector<std::string> parts = split(name, '.');
  if (parts.size() == 3 && parts[0] == "hvd") return to_integer(parts[1]) && parts[2].size() == 16;
  for (const std::string_view prefix : {"vader_segment.", "sm_segment."})
    if (name.starts_with(prefix))
      return name.substr(prefix.size()).starts_with(owner) &&
             name.find("." + std::to_string(::geteuid()) + ".") != std::string::npos;
  return false;
}

std::set<std::string> candidates(double since_seconds, const std::string& folder) {
  std::set<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    struct stat about {};
    if (!is_ours(name) || ::lstat(entry.path().c_str(), &about) != 0) continue;
    const double made = static_cast<double>(about.st_ctim.tv_sec) + static_cast<double>(about.st_ctim.tv_nsec) / 1e9;
    if (S_ISREG(about.st_mode) && about.st_uid == ::geteuid() && made >= since_seconds) found.insert(entry.path());
  }
  return found;
}

/// Less those that some process has mapped.  Processes of other users cannot be looked at, and cannot map them either.
void drop_mapped(std::set<std::string>* paths) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    if (paths->empty()) return;
    if (!to_integer(entry.path().filename().string())) continue;
    std::ifstream maps(entry.path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (const std::size_t path = line.find('/'); path != std::string::npos) paths->erase(line.substr(path));
  }
}

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder) {
  std::set<std::string> paths = candidates(since_seconds, folder);
  if (paths.empty()) return {};
  drop_mapped(&paths);
  if (paths.empty()) return {};
  std::this_thread::sleep_for(between_looks);
  drop_mapped(&paths);
  std::vector<std::string> removed;
  for (const std::string& path : paths)
    if (::unlink(path.c_str()) == 0) removed.push_back(path.substr(path.rfind('/') + 1));
  return removed;
}

}  // namespace hvd
