/// A stopped process takes no signal.  With ptrace, only its main thread goes on.  The main thread takes stack_signal,
/// and is held again when it returns from the handler (rt_sigreturn).  The kernel restores the stop when the tracer
/// leaves, also when the tracer is killed.
#include "rank/diagnostics/stacks/stopped_stack.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"
#include "rank/diagnostics/stacks/stack_capture.h"

namespace hvd::rank {

namespace {

// Declared here, because older C libraries and kernel headers lack them (Linux 5.3, ptrace(2)).
constexpr int event_stop = 128, get_syscall_info = 0x420e;
enum SyscallOp : std::uint8_t { syscall_entry = 1, syscall_exit = 2 };
struct SyscallInfo {
  std::uint8_t op;
  std::uint8_t unused[3];
  std::uint32_t arch;
  std::uint64_t instruction, stack;
  std::uint64_t number_or_result, arguments[6];
};

constexpr unsigned limit_seconds = 2;

/// A mask of /proc/PID/task/TID/status, such as SigBlk.
std::optional<unsigned long long> mask_of(pid_t pid, pid_t thread, const std::string& name) {
  std::istringstream lines(whole_text(formatted("/proc/{}/task/{}/status", pid, thread)));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    unsigned long long mask = 0;
    std::istringstream(line.substr(name.size() + 1)) >> std::hex >> mask;
    return mask;
  }
  return std::nullopt;
}

/// True if the main thread takes stack_signal as soon as it runs, and no other signal before.
bool takes_only_ours(pid_t pid) {
  const auto own = mask_of(pid, pid, "SigPnd"), shared = mask_of(pid, pid, "ShdPnd"),
             blocked = mask_of(pid, pid, "SigBlk");
  return own && shared && blocked && ((*own | *shared) & ~*blocked) == 0 && !(*blocked >> (stack_signal - 1) & 1);
}

/// The next stop of the traced thread, as waitpid(2)'s status; nothing: it has ended.
std::optional<int> next_stop(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status) ? std::optional(status) : std::nullopt;
}

/// True if the thread has just left rt_sigreturn.  @p returning  it has entered that call
bool has_returned(pid_t pid, bool& returning) {
  SyscallInfo call{};
  if (ptrace(static_cast<__ptrace_request>(get_syscall_info), pid, sizeof call, &call) <= 0) return true;
  if (call.op == syscall_entry) returning = call.number_or_result == SYS_rt_sigreturn;
  return call.op == syscall_exit && returning;
}

}  // namespace

int run_handler_of_stopped(pid_t pid) {
  std::signal(SIGALRM, SIG_DFL);
  alarm(limit_seconds);  // ends this process, and the kernel stops the thread again
  if (!takes_only_ours(pid) || ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) != 0) return 1;
  bool asked = false, handles = false, returning = false;
  while (const auto status = next_stop(pid)) {
    const int number = WSTOPSIG(*status);
    long deliver = 0;
    if (*status >> 16 == event_stop) {
      if (!asked && syscall(SYS_tgkill, pid, pid, stack_signal) != 0) break;
      asked = true;
    } else if (number == (SIGTRAP | 0x80)) {
      if (handles && has_returned(pid, returning)) break;
    } else {
      deliver = number;
      if (number != stack_signal) {  // came meanwhile: the thread takes it when it goes on
        ptrace(PTRACE_DETACH, pid, 0, deliver);
        return 1;
      }
      handles = true;
    }
    if (ptrace(PTRACE_SYSCALL, pid, 0, deliver) != 0) break;
  }
  ptrace(PTRACE_DETACH, pid, 0, 0);
  return handles && returning ? 0 : 1;
}

std::optional<pid_t> other_thread(pid_t pid) {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(formatted("/proc/{}/task", pid), ignored)) {
    const pid_t thread = static_cast<pid_t>(to_integer(task.path().filename().string()).value_or(0));
    const std::string stat = whole_text(task.path().string() + "/stat");
    const std::size_t name = stat.rfind(')');
    const char state = name == std::string::npos || name + 2 >= stat.size() ? 'D' : stat[name + 2];
    if (thread == pid || (state != 'S' && state != 'R')) continue;
    if (const auto blocked = mask_of(pid, thread, "SigBlk"); blocked && !(*blocked >> (stack_signal - 1) & 1))
      return thread;
  }
  return std::nullopt;
}

std::string with_main_as_current(const std::string& python) {
  std::string text = python;
  const std::string current = "Current thread 0x", other = "Thread 0x";
  if (const std::size_t at = text.find(current); at != std::string::npos) text.replace(at, current.size(), other);
  if (const std::size_t last = text.rfind(other); last != std::string::npos) text.replace(last, other.size(), current);
  return text;
}

bool is_frozen(pid_t pid) {
  for (const std::string& line : split(whole_text(formatted("/proc/{}/cgroup", pid)), '\n')) {
    const std::vector<std::string> part = split(line, ':');  // id:controllers:path
    if (part.size() < 3) continue;
    const std::string mount = "/sys/fs/cgroup";
    if (part[1] == "freezer" && whole_text(mount + "/freezer" + part[2] + "/freezer.state").starts_with("FROZEN"))
      return true;
    if (part[1].empty() && whole_text(mount + part[2] + "/cgroup.events").find("frozen 1") != std::string::npos)
      return true;
  }
  return false;
}

}  // namespace hvd::rank
