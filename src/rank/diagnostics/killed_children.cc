#include "rank/diagnostics/killed_children.h"

#include <dirent.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

/// Of /proc/PID/stat behind the name, counted from 0: state, parent, and the exit status as waitpid() gives it.
constexpr std::size_t state_field = 0, parent_field = 1, status_field = 49;

}  // namespace

bool is_trouble(int signal) {
  constexpr int signals[] = {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
  return std::find(std::begin(signals), std::end(signals), signal) != std::end(signals);
}

std::map<pid_t, KilledChild> killed_children(pid_t parent) {
  std::map<pid_t, KilledChild> killed;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return killed;
  while (const dirent* entry = readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    const std::string stat = whole_text(formatted("/proc/{}/stat", pid));  // the name may hold blanks and brackets
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    if (open == stat.npos || close == stat.npos) continue;
    const std::vector<std::string> fields = words(std::string_view(stat).substr(close + 1));
    if (fields.size() <= status_field || fields[state_field] != "Z") continue;
    if (to_integer(fields[parent_field]).value_or(0) != parent) continue;
    const int status = static_cast<int>(to_integer(fields[status_field]).value_or(0));
    if (!WIFSIGNALED(status) || !is_trouble(WTERMSIG(status))) continue;
    killed[pid] = {stat.substr(open + 1, close - open - 1), WTERMSIG(status)};
  }
  closedir(proc);
  return killed;
}

std::string killed_text(const std::map<pid_t, KilledChild>& killed) {
  if (killed.empty()) return {};
  const auto& [pid, child] = *killed.begin();
  const char* name = sigabbrev_np(child.signal);
  std::string text = formatted("its process {} ({}) was killed by signal {}", pid, child.name, child.signal);
  if (name != nullptr) text += formatted(" (SIG{})", name);
  if (killed.size() > 1) text += formatted(", {} more likewise", killed.size() - 1);
  return text;
}

}  // namespace hvd::rank
