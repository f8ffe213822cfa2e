#include "base/process/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/file.h"
#include "base/process/child.h"
#include "base/process/held_signals.h"
#include "base/process/process.h"

namespace hvd {

namespace {

constexpr long long look_every_ms = 100;        // processes that the program left may keep its streams open
constexpr long long look_for_end_every_ms = 5;  // its streams have ended, so it ends about now

/// Reads only the bytes that are in the stream now.  Processes that the ended program left may go on writing.
void drain_rest(Fd& fd, std::string& into) {
  int left = 0;
  if (!fd || ::ioctl(fd.get(), FIONREAD, &left) != 0) return;
  while (fd && left > 0)
    left -= static_cast<int>(read_some(fd, into, most_captured_bytes, static_cast<std::size_t>(left)));
}

/// The program has ended; it stays a zombie.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

}  // namespace

CaptureResult capture(const std::vector<std::string>& command, const std::string& input,
                      std::chrono::milliseconds limit) {
  CaptureResult result;
  Fd in(::memfd_create("hvd-input", MFD_CLOEXEC));
  int out[2], err[2];
  if (!in || !write_all(in.get(), input) || ::lseek(in.get(), 0, SEEK_SET) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    result.err = errno_text(errno);
    return result;
  }
  Fd out_read(out[0]), out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return result.err = errno_text(errno), result;
  Fd err_read(err[0]), err_write(err[1]);
  HeldSignals held;
  StartedChild child;
  try {
    child = start_child({.program = command[0],
                         .arguments = command,
                         .search_path = true,
                         .input = in.get(),
                         .output = out_write.get(),
                         .errors = err_write.get()});
  } catch (const Error& e) { return result.err = e.what(), result; }
  if (child.failure) return result.err = errno_text(child.failure->error), result;
  result.started = true;
  out_write.reset(), err_write.reset();

  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (has_ended(child.pid)) {
      drain_rest(out_read, result.out), drain_rest(err_read, result.err);
      break;
    }
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    const long long pause = out_read || err_read ? look_every_ms : look_for_end_every_ms;
    pollfd fds[3] = {{out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}, {held.fd(), POLLIN, 0}};
    if (::poll(fds, 3, static_cast<int>(std::min<long long>(left, pause))) <= 0) continue;
    if (fds[2].revents) held.end_if_asked();
    if (out_read && fds[0].revents) read_some(out_read, result.out, most_captured_bytes);
    if (err_read && fds[1].revents) read_some(err_read, result.err, most_captured_bytes);
  }
  if (result.timed_out) {
    // Kills the program first.  After the end of a child, the program could end by itself with another exit code.
    const std::vector<pid_t> below = descendants(child.pid);
    ::kill(-child.pid, SIGKILL), ::kill(child.pid, SIGKILL);
    for (const pid_t pid : below) ::kill(pid, SIGKILL);
  }
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {}
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace hvd
