#include "rank/diagnostics/death/killed_children.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "base/format.h"
#include "base/process/process.h"
#include "base/process/signals.h"

namespace hvd::rank {
bool is_trouble(int signal) {
  constexpr int signals[] = {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
  return std::find(std::begin(signals), std::end(signals), signal) != std::end(signals);
}

std::map<pid_t, KilledChild> killed_children(pid_t parent) {
  std::map<pid_t, KilledChild> killed;
  for (auto& [pid, process] : all_processes()) {
    if (!process.is_zombie() || process.parent != parent) continue;
    const int status = process.exit_status;
    if (WIFSIGNALED(status) && is_trouble(WTERMSIG(status))) killed[pid] = {std::move(process.name), WTERMSIG(status)};
  }
  return killed;
}

std::string killed_text(const std::map<pid_t, KilledChild>& killed) {
  if (killed.empty()) return {};
  const auto& [pid, child] = *killed.begin();
  const char* name = signal_name(child.signal);
  std::string text = formatted("its process {} ({}) was killed by signal {}", pid, child.name, child.signal);
  if (name != nullptr) text += formatted(" (SIG{})", name);
  if (killed.size() > 1) text += formatted(", {} more likewise", killed.size() - 1);
  return text;
}

}  // namespace hvd::rank
