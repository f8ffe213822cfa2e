#include "base/files/leftovers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/format.h"
#include "base/process/maker.h"

namespace hvd {
namespace {

/// True if a file has a name of Open MPI's: vader_segment.HOST.UID.JOB.RANK (version 4) or sm_segment.… (version 5).
bool is_of_mpi(const std::string& name) {
  static const std::string owner = [] {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string full = host;
    return full.substr(0, full.find('.'));
  }();
  for (const std::string_view prefix : {"vader_segment.", "sm_segment."})
    if (name.starts_with(prefix))
      return name.substr(prefix.size()).starts_with(owner) &&
             name.find(formatted(".{}.", ::geteuid())) != std::string::npos;
  return false;
}

/// True if a file is libhvd's, and its maker is gone.  Name: hvd.PID.START.NAMESPACE.RANDOM.  libhvd removes the name
/// when all ranks have the file open.
bool is_of_gone_rank(const std::string& name) {
  const std::size_t first = name.find('.'), last = name.rfind('.');
  if (!name.starts_with("hvd.") || last <= first || name.size() - last - 1 != 16) return false;
  const auto maker = maker_from(std::string_view(name).substr(first + 1, last - first - 1));
  return maker && is_gone(*maker);
}

/// True when no process of any container has the file open or mapped.  Only then the kernel grants a write lease.
bool nobody_has(int file) {
  // A process that opens the file now waits until this process closes it.  The kernel then signals this process.  The
  // signal is SIGURG, which is ignored by default.
  return ::fcntl(file, F_SETSIG, SIGURG) == 0 && ::fcntl(file, F_SETLEASE, F_WRLCK) == 0;
}

double seconds(const timespec& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9; }

bool remove_if_left(const std::string& path, const std::string& name, double since_seconds) {
  const bool of_mpi = is_of_mpi(name);
  if (!of_mpi && !is_of_gone_rank(name)) return false;
  struct stat about {};
  if (!of_mpi && ::lstat(path.c_str(), &about) == 0 && S_ISSOCK(about.st_mode))  // open() fails on a socket
    return about.st_uid == ::geteuid() && seconds(about.st_ctim) >= since_seconds && ::unlink(path.c_str()) == 0;
  const Fd file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &about) != 0) return false;
  if (!S_ISREG(about.st_mode) || about.st_uid != ::geteuid() || seconds(about.st_ctim) < since_seconds) return false;
  if (of_mpi && !nobody_has(file.get())) return false;  // the name does not contain the maker
  return ::unlink(path.c_str()) == 0;
}

/// Calls remove(path, name) for each entry of @p folder.  Returns the names for which it returned true.
template <class Remove>
std::vector<std::string> remove_all(const std::string& folder, Remove remove) {
  std::vector<std::string> names, removed;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename());
  for (const std::string& name : names)
    if (remove(folder + "/" + name, name)) removed.push_back(name);
  return removed;
}

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder) {
  return remove_all(folder, [&](const std::string& path, const std::string& name) {
    return remove_if_left(path, name, since_seconds);
  });
}

std::vector<std::string> remove_files_of_gone_ranks(const std::string& folder) {
  return remove_all(folder, [](const std::string& path, const std::string& name) {
    return is_of_gone_rank(name) && remove_if_left(path, name, 0);
  });
}

}  // namespace hvd
