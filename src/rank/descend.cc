#include "descend.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace hvd::rank {
namespace {

/// The parent's pid from /proc/PID/stat; the command name in it may hold spaces and brackets.  0: gone.
pid_t parent_of(pid_t pid) {
  char path[40], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* end = std::strrchr(text, ')');
  char state = 0;
  int parent = 0;
  if (end == nullptr || std::sscanf(end + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

}  // namespace

void become_subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return {};
  while (const dirent* entry = readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0) children.emplace(parent_of(pid), pid);
  }
  closedir(proc);
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto it = first; it != last; ++it)
      if (std::find(found.begin(), found.end(), it->second) == found.end()) found.push_back(it->second);
  }
  found.erase(found.begin());
  return found;
}

void kill_descendants_once() {
  for (const pid_t pid : descendants(getpid())) kill(pid, SIGKILL);
}

bool kill_descendants(int limit_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (;;) {
    pid_t reaped;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) {}
    if (reaped < 0 && errno == ECHILD) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    kill_descendants_once();
    usleep(2000);
  }
}

}  // namespace hvd::rank
