#include "rank/guard/descendants.h"

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
#include <fstream>
#include <iterator>
#include <map>

#include "base/format.h"

namespace hvd::rank {
namespace {

struct Status {
  std::string name;
  char state = 0;
  pid_t parent = 0;  ///< 0: gone
};

/// From /proc/PID/stat; the command name in it may hold spaces and brackets.
Status status_of(pid_t pid) {
  char path[40], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return {};
  text[n] = 0;
  const char *begin = std::strchr(text, '('), *end = std::strrchr(text, ')');
  Status s;
  int parent = 0;
  if (!begin || !end || std::sscanf(end + 1, " %c %d", &s.state, &parent) != 2) return {};
  s.parent = parent;
  s.name.assign(begin + 1, end);
  return s;
}

/// @p what with every process of this machine.
template <class F>
void each_process(F what) {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return;
  while (const dirent* entry = readdir(proc))
    if (const int pid = std::atoi(entry->d_name); pid > 0) what(pid);
  closedir(proc);
}

}  // namespace

pid_t parent_of(pid_t pid) { return status_of(pid).parent; }

void become_subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

bool has_other_children(pid_t pid, pid_t one) {
  bool found = false;
  each_process([&](pid_t other) {
    if (other == one) return;
    const Status s = status_of(other);
    found = found || (s.parent == pid && s.state != 'Z');
  });
  return found;
}

std::vector<pid_t> descendants(pid_t root) { return descendants_but(root, {}); }

std::vector<pid_t> descendants_but(pid_t root, const std::vector<pid_t>& spared) {
  std::multimap<pid_t, pid_t> children;
  each_process([&](pid_t pid) { children.emplace(status_of(pid).parent, pid); });
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto it = first; it != last; ++it)
      if (std::find(found.begin(), found.end(), it->second) == found.end() &&
          std::find(spared.begin(), spared.end(), it->second) == spared.end())
        found.push_back(it->second);
  }
  found.erase(found.begin());
  return found;
}

std::string name_of(pid_t pid) {
  const Status s = status_of(pid);
  return s.state == 'Z' ? std::string() : s.name;
}

void kill_descendants_once(KilledProcesses* killed) {
  for (const pid_t pid : descendants(getpid())) {
    if (killed)
      if (std::string name = name_of(pid); !name.empty()) killed->emplace(pid, std::move(name));
    kill(pid, SIGKILL);
  }
}

std::vector<pid_t> strays(const std::string& job) {
  std::vector<pid_t> found;
  const std::string mark = '\0' + ("HVD_JOB=" + job) + '\0', rank_mark = std::string(1, '\0') + "HVD_LINK_FD=";
  each_process([&](pid_t pid) {
    std::ifstream file(formatted("/proc/{}/environ", pid), std::ios::binary);
    if (!file) return;
    const std::string text = '\0' + std::string(std::istreambuf_iterator<char>(file), {});
    // Watchdogs, guards and mpirun's daemon have no link to a rank.
    if (text.find(mark) != text.npos && text.find(rank_mark) != text.npos && !name_of(pid).empty())
      found.push_back(pid);
  });
  return found;
}

void kill_descendants_but(const std::vector<pid_t>& spared) {
  for (const pid_t pid : descendants_but(getpid(), spared)) kill(pid, SIGKILL);
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
