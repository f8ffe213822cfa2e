#include "launcher/process/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream list(task.path() / "children");
    for (pid_t pid = 0; list >> pid;) found.push_back(pid);
  }
  return found;
}

struct ProcessEntry {
  std::string name;
  char state = 0;
  pid_t parent = 0;
};

/// Every process, from one walk.
std::map<pid_t, ProcessEntry> processes() {
  std::map<pid_t, ProcessEntry> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = to_integer(entry.path().filename().string());
    if (!pid) continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t begin = line.find('('), end = line.rfind(')');  // the name may hold anything
    if (begin == std::string::npos || end == std::string::npos) continue;
    const std::vector<std::string> fields = words(std::string_view(line).substr(end + 1));
    if (fields.size() > 1)
      out[static_cast<pid_t>(*pid)] = {line.substr(begin + 1, end - begin - 1), fields[0][0],
                                       static_cast<pid_t>(to_integer(fields[1]).value_or(0))};
  }
  return out;
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void reap_orphans(const std::vector<pid_t>& own) {
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    if (std::find(own.begin(), own.end(), ended.si_pid) != own.end()) return;  // its turn comes first
    ::waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

bool kill_descendants(int limit_ms, std::vector<std::string>* ended) {
  std::map<pid_t, std::string> names;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
    const bool none = ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
    if (none || std::chrono::steady_clock::now() > deadline) {
      for (const auto& [pid, name] : names)
        if (ended) ended->push_back(name);
      return none;
    }
    // From the top down, so that a killed parent cannot fork again; orphans come up to us for the next round.
    std::vector<pid_t> level = children_of_this_process();
    const std::map<pid_t, ProcessEntry> all = processes();
    while (!level.empty()) {
      std::vector<pid_t> next;
      for (const pid_t pid : level) {
        if (const auto it = all.find(pid); it != all.end() && it->second.state != 'Z')
          names.emplace(pid, it->second.name);
        ::kill(pid, SIGKILL);
      }
      for (const auto& [pid, process] : all)
        if (std::find(level.begin(), level.end(), process.parent) != level.end()) next.push_back(pid);
      level = std::move(next);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void end_with_parent(int pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != pid) throw Error(Code::unavailable, "--parent", "process " + std::to_string(pid) + " is gone");
}

}  // namespace hvd::launcher
