#include "launcher/remote/shell_talk.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "base/process/child.h"
#include "launcher/start/remote_shell.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_said = 64u << 20, most_errors = 64u << 10;
constexpr auto may_end = 5s;

}  // namespace

ShellTalk::ShellTalk(const std::vector<std::string>& command, Time deadline) : deadline_(deadline) {
  // A socket, unlike a pipe, reports a reader that is gone without a signal.
  int in[2], out[2], err[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  Fd theirs(in[1]);
  in_ = Fd(in[0]);
  if (::pipe2(out, O_CLOEXEC) != 0) throw Error(Code::unavailable, "pipe", errno_text(errno));
  out_ = Fd(out[0]);
  const Fd out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) throw Error(Code::unavailable, "pipe", errno_text(errno));
  err_ = Fd(err[0]);
  const Fd err_write(err[1]);
  const StartedChild child = start_child({.program = command[0],
                                          .arguments = command,
                                          .search_path = true,
                                          .input = theirs.get(),
                                          .output = out_write.get(),
                                          .errors = err_write.get()});
  if (child.failure)
    throw Error(Code::unavailable, "", cannot_run_mark + command[0] + ": " + errno_text(child.failure->error),
                "apt install openssh-client, or correct --ssh-program");
  pid_ = child.pid;
  ::fcntl(in_.get(), F_SETFL, O_NONBLOCK);
}

ShellTalk::~ShellTalk() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL), ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
}

bool ShellTalk::wait(bool to_write, Time until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(until, deadline_) - Time::clock::now());
  if (left <= 0ms) return timed_out_ = true, false;
  pollfd fds[3] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {to_write ? in_.get() : -1, POLLOUT, 0}};
  ::poll(fds, 3, static_cast<int>(left.count()));
  if (out_ && fds[0].revents) read_some(out_, said_, most_said);
  if (err_ && fds[1].revents) read_some(err_, errors_, most_errors);
  return true;
}

bool ShellTalk::say(std::string_view text, std::chrono::seconds patience) {
  Time until = Time::clock::now() + patience;
  while (!text.empty()) {
    const ssize_t n = ::send(in_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (n > 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
      until = Time::clock::now() + patience;
    } else if (errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait(true, until)) {
      return false;
    }
  }
  return true;
}

bool ShellTalk::send_file(int fd, std::uint64_t size, std::chrono::seconds patience,
                          const std::function<void(std::uint64_t)>& told) {
  std::string piece(256u << 10, '\0');
  for (std::uint64_t at = 0; at < size; told(at)) {
    const ssize_t n =
        ::pread(fd, piece.data(), std::min<std::uint64_t>(piece.size(), size - at), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || !say(std::string_view(piece).substr(0, static_cast<std::size_t>(n)), patience)) return false;
    at += static_cast<std::uint64_t>(n);
  }
  in_.reset();
  return true;
}

std::optional<std::string> ShellTalk::line(std::chrono::seconds patience) {
  const Time until = Time::clock::now() + patience;
  std::size_t end;
  while ((end = said_.find('\n')) == std::string::npos)
    if (!out_ || !wait(false, until)) return std::nullopt;
  std::string first = said_.substr(0, end);
  said_.erase(0, end + 1);
  return first;
}

int ShellTalk::finish() {
  in_.reset();
  const Time until = std::min(Time::clock::now() + may_end, deadline_);
  const bool was_late = timed_out_;
  while ((out_ || err_) && wait(false, until)) {}
  timed_out_ = was_late;
  const pid_t pid = std::exchange(pid_, -1);
  int status = 0;
  for (pid_t ended; (ended = ::waitpid(pid, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR); ::usleep(5000))
    if (Time::clock::now() >= until) ::kill(-pid, SIGKILL), ::kill(pid, SIGKILL);
  return status;
}

}  // namespace hvd::launcher
