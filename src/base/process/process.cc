#include "base/process/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/format.h"

namespace hvd {
namespace {

/// Calls @p visit with each number that is the name of an entry of the folder.
template <class F>
void each_number(const char* folder, F visit) {
  DIR* const entries = ::opendir(folder);
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries))
    if (const int number = std::atoi(entry->d_name); number > 0) visit(static_cast<pid_t>(number));
  ::closedir(entries);
}

/// For kernels without lists of children (CONFIG_PROC_CHILDREN).
std::vector<pid_t> children_by_walk(pid_t pid) {
  std::vector<pid_t> found;
  for (const auto& [child, entry] : all_processes())
    if (entry.parent == pid) found.push_back(child);
  return found;
}

}  // namespace

/// Source of the fields: proc_pid_stat(5).  The name may contain blanks and brackets, and ends at the last bracket.
std::optional<ProcessEntry> process_entry(pid_t pid) {
  char text[1024];
  const Fd file(::open(formatted("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t n = file ? ::read(file.get(), text, sizeof text - 1) : 0;
  if (n <= 0) return std::nullopt;
  text[n] = 0;
  const char *begin = std::strchr(text, '('), *end = std::strrchr(text, ')');
  if (begin == nullptr || end == nullptr || end[1] == 0 || end[2] == 0) return std::nullopt;
  ProcessEntry entry;
  entry.name.assign(begin + 1, end);
  entry.state = end[2];
  constexpr int parent_field = 4, threads_field = 20, start_field = 22, status_field = 52;
  char* at = const_cast<char*>(end) + 3;
  int field = parent_field;
  for (; field <= status_field; ++field) {
    char* after = nullptr;
    const long long value = std::strtoll(at, &after, 10);
    if (after == at) break;
    at = after;
    if (field == parent_field) entry.parent = static_cast<pid_t>(value);
    if (field == threads_field) entry.threads = value;
    if (field == start_field) entry.start_ticks = value;
    if (field == status_field) entry.exit_status = static_cast<int>(value);
  }
  if (field <= start_field) return std::nullopt;
  return entry;
}

std::map<pid_t, ProcessEntry> all_processes() {
  std::map<pid_t, ProcessEntry> found;
  each_number("/proc", [&](pid_t pid) {
    if (auto entry = process_entry(pid)) found.emplace(pid, std::move(*entry));
  });
  return found;
}

std::vector<pid_t> children_of(pid_t pid) {
  static const bool has_lists = ::access("/proc/thread-self/children", R_OK) == 0;
  if (!has_lists) return children_by_walk(pid);
  std::vector<pid_t> found;
  const std::string tasks = formatted("/proc/{}/task", pid);
  each_number(tasks.c_str(), [&](pid_t task) {
    std::ifstream list(formatted("{}/{}/children", tasks, task));
    for (pid_t child; list >> child;) found.push_back(child);
  });
  return found;
}

std::vector<pid_t> descendants(pid_t root, const std::vector<pid_t>& spared) {
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, entry] : all_processes()) children.emplace(entry.parent, pid);
  std::vector<pid_t> found{root};
  const auto is_in = [](const std::vector<pid_t>& list, pid_t pid) {
    return std::find(list.begin(), list.end(), pid) != list.end();
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto it = first; it != last; ++it)
      if (!is_in(found, it->second) && !is_in(spared, it->second)) found.push_back(it->second);
  }
  found.erase(found.begin());
  return found;
}

std::string process_name(pid_t pid) {
  const auto entry = process_entry(pid);
  return entry && !entry->is_zombie() ? entry->name : std::string();
}

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

/// Kills parents before their children: a killed parent cannot fork again.
void kill_descendants_once(KilledProcesses* killed, const std::vector<pid_t>& spared) {
  for (const pid_t pid : descendants(::getpid(), spared)) {
    if (killed != nullptr)
      if (std::string name = process_name(pid); !name.empty()) killed->emplace(pid, std::move(name));
    ::kill(pid, SIGKILL);
  }
}

/// Between two rounds, this process adopts the orphans of the killed processes.
bool kill_descendants(std::chrono::milliseconds limit, KilledProcesses* killed) {
  constexpr useconds_t between_rounds_us = 2000;
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {}
    if (reaped < 0 && errno == ECHILD) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    kill_descendants_once(killed);
    ::usleep(between_rounds_us);
  }
}

std::optional<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer;
}

bool is_of_this_user(int socket) {
  const auto peer = peer_of(socket);
  return peer && peer->uid == ::geteuid();
}

}  // namespace hvd
