#include "launcher/spark/host_shell.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/own_folder.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/process/child_process.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/signal_queue.h"

namespace hvd::launcher {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto last_grace = std::chrono::seconds(6);  // hvdrun's own grace period is five
constexpr std::chrono::seconds kill_limit{3};
constexpr std::size_t most_script_bytes = 1u << 20;

std::string all_of_stdin() {
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(0, piece, sizeof piece)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || text.size() > most_script_bytes) throw Error(Code::usage, "--host-shell", "no script on stdin");
    text.append(piece, static_cast<std::size_t>(n));
  }
  return text;
}

std::map<std::string, std::string> task_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environment_block(); *entry; ++entry) {
    const std::string line = *entry;
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      out[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return out;
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

/// Waits until the shell has ended, or until the grace period after a request to end is over.
int watch(ChildProcess& shell, SignalQueue& signals) {
  std::optional<Clock::time_point> deadline;
  for (;;) {
    pollfd on[2] = {{signals.fd(), POLLIN, 0}, {shell.output_fd(), POLLIN, 0}};
    ::poll(on, shell.output_fd() < 0 ? 1 : 2, 200);
    while (const auto number = signals.next())
      if (*number != SIGCHLD && !deadline) deadline = Clock::now() + last_grace;
    write_all(1, shell.read_output());
    if (const auto status = shell.status()) return code_of(*status);
    if (deadline && Clock::now() > *deadline) return 128 + SIGTERM;
  }
}

}  // namespace

int host_shell(const std::vector<std::string>& args) {
  const auto parent = args.size() == 1 ? to_integer(args[0]) : std::nullopt;
  if (!parent) throw Error(Code::usage, "--host-shell", "is for a Spark task's use");
  SignalQueue signals;
  end_with_parent(static_cast<int>(*parent));
  become_subreaper();
  // The child inherits this descriptor: its shell reads the script from there and closes it first.
  const Fd script(::memfd_create("hvdrun-script", 0));
  const std::string number = std::to_string(script.get());
  if (!script || !write_all(script.get(), formatted("exec {}<&-\n{}", number, all_of_stdin())) ||
      ::lseek(script.get(), 0, SEEK_SET) != 0)
    throw Error(Code::unavailable, "--host-shell", "cannot hold the script: " + errno_text(errno));
  const std::string where = place_for_own_folder();
  sweep_own_folders(where, "hvd-host-");
  const OwnFolder folder(where, "hvd-host-", ::getpid());  // for the daemon's own files
  std::map<std::string, std::string> environment = task_environment();
  environment["TMPDIR"] = folder.path();
  ChildProcess shell({"/bin/sh", "/dev/fd/" + number}, environment);
  const int code = watch(shell, signals);
  write_all(1, shell.read_output());
  kill_descendants(kill_limit);
  return code;
}

}  // namespace hvd::launcher
