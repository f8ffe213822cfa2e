#include "launcher/process/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/file.h"
#include "launcher/process/child_setup.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_bytes = 1u << 20;

/// In the child: only system calls from here to exec.
[[noreturn]] void become(char** argv, pid_t parent, int in, int out, int err, int report) {
  set_up_child(parent);
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::execvp(argv[0], argv);
  const int number = errno;
  [[maybe_unused]] const ssize_t n = ::write(report, &number, sizeof number);
  ::_exit(127);
}

/// Reads without waiting; closes @p fd at its end.
void drain(Fd& fd, std::string& into) {
  char piece[16384];
  const ssize_t n = ::read(fd.get(), piece, sizeof piece);
  if (n > 0) into.append(piece, std::min(static_cast<std::size_t>(n), most_bytes - std::min(most_bytes, into.size())));
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) fd.reset();
}

}  // namespace

CaptureResult capture(const std::vector<std::string>& command, const std::string& input,
                      std::chrono::milliseconds limit) {
  CaptureResult result;
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);

  Fd in(::memfd_create("hvdrun-input", MFD_CLOEXEC));
  int out[2], err[2], report[2];
  if (!in || !write_all(in.get(), input) || ::lseek(in.get(), 0, SEEK_SET) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    result.err = errno_text(errno);
    return result;
  }
  Fd out_read(out[0]), out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return result.err = errno_text(errno), result;
  Fd err_read(err[0]), err_write(err[1]);
  if (::pipe2(report, O_CLOEXEC) != 0) return result.err = errno_text(errno), result;
  Fd report_read(report[0]), report_write(report[1]);

  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return result.err = errno_text(errno), result;
  if (pid == 0) become(argv.data(), self, in.get(), out_write.get(), err_write.get(), report_write.get());
  out_write.reset(), err_write.reset(), report_write.reset();
  int number = 0;
  ssize_t told = 0;
  while ((told = ::read(report_read.get(), &number, sizeof number)) < 0 && errno == EINTR) {}
  result.started = told != sizeof number;

  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (result.started && (out_read || err_read)) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    pollfd fds[2] = {{out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}};
    if (::poll(fds, 2, static_cast<int>(left)) <= 0) continue;
    if (out_read && fds[0].revents) drain(out_read, result.out);
    if (err_read && fds[1].revents) drain(err_read, result.err);
  }
  if (result.timed_out) ::kill(-pid, SIGKILL), ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (!result.started) result.err = errno_text(number);
  return result;
}

}  // namespace hvd::launcher
