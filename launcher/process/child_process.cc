#include "launcher/process/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/process/child.h"

namespace hvd::launcher {

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::map<std::string, std::string>& environment, const std::string& input) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) lines.push_back(name + "=" + value);
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0)
    throw Error(Code::unavailable, "pipe", errno_text(errno), "too many open files? see ulimit -n");
  output_ = Fd(output[0]);
  const Fd output_end(output[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  Fd source;
  if (!input.empty()) {
    source = Fd(::memfd_create("hvdrun-input", MFD_CLOEXEC));
    if (!source || !write_all(source.get(), input) || ::lseek(source.get(), 0, SEEK_SET) != 0)
      throw Error(Code::unavailable, command[0], "cannot be given its input: " + errno_text(errno));
  }
  const StartedChild child = start_child({.program = command[0],
                                          .arguments = command,
                                          .environment = std::move(lines),
                                          .input = source.get(),
                                          .output = output_end.get(),
                                          .errors = output_end.get()});
  if (child.failure)
    throw Error(Code::unavailable, command[0], "cannot be executed: " + errno_text(child.failure->error));
  pid_ = child.pid;
}

ChildProcess::~ChildProcess() {
  // kill_descendants() may have reaped the child.  Then its number may be another process's.
  if (pid_ > 0 && !status_ && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::string ChildProcess::read_output(std::size_t most_bytes) {
  std::string fresh;
  char piece[16384];
  while (output_ && fresh.size() < most_bytes) {
    const ssize_t n = ::read(output_.get(), piece, sizeof piece);
    if (n > 0) {
      fresh.append(piece, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || errno != EAGAIN) output_.reset();
    break;
  }
  text_ += fresh;
  if (text_.size() > most_output_bytes) text_.erase(0, text_.size() - most_output_bytes);
  return fresh;
}

std::optional<int> ChildProcess::status() {
  int status = 0;
  if (!status_ && pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

void ChildProcess::signal(int number) {
  if (pid_ <= 0 || status_) return;
  ::kill(-pid_, number);
  if (number == SIGKILL) ::kill(pid_, number);
}

}  // namespace hvd::launcher
