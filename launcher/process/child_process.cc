#include "launcher/process/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "launcher/process/child_setup.h"

namespace hvd::launcher {

namespace {

/// Runs in the child, which shares our memory until exec: only system calls.
[[noreturn]] void become(char** argv, char** envp, pid_t parent, int input, int output, int report) {
  set_up_child(parent);
  const int source = input >= 0 ? input : ::open("/dev/null", O_RDONLY);
  if (source >= 0) ::dup2(source, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  ::execve(argv[0], argv, envp);
  const int number = errno;
  [[maybe_unused]] const ssize_t n = ::write(report, &number, sizeof number);
  ::_exit(127);
}

/// By vfork: fork would copy the page tables of this process, and then its pages, which takes a millisecond.
pid_t start(char** argv, char** envp, int input, int output, int report) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours runs in the child
  const pid_t self = ::getpid(), pid = ::vfork();
  if (pid == 0) become(argv, envp, self, input, output, report);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::map<std::string, std::string>& environment, const std::string& input) {
  std::vector<std::string> words = command, lines;
  for (const auto& [name, value] : environment) lines.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& w : words) argv.push_back(w.data());
  for (std::string& l : lines) envp.push_back(l.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int output[2], report[2];
  if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(report, O_CLOEXEC) != 0)
    throw Error(Code::unavailable, "pipe", errno_text(errno), "too many open files? see ulimit -n");
  output_ = Fd(output[0]);
  Fd output_end(output[1]), report_read(report[0]), report_end(report[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  Fd source;
  if (!input.empty()) {
    source = Fd(::memfd_create("hvdrun-input", MFD_CLOEXEC));
    if (!source || !write_all(source.get(), input) || ::lseek(source.get(), 0, SEEK_SET) != 0)
      throw Error(Code::unavailable, command[0], "cannot be given its input: " + errno_text(errno));
  }
  pid_ = start(argv.data(), envp.data(), source.get(), output_end.get(), report_end.get());
  if (pid_ < 0) throw Error(Code::unavailable, "fork", errno_text(errno), "too many processes? see ulimit -u");
  report_end.reset();
  int number = 0;
  ssize_t n = 0;
  while ((n = ::read(report_read.get(), &number, sizeof number)) < 0 && errno == EINTR) {}
  if (n == sizeof number) {
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    throw Error(Code::unavailable, command[0], "cannot be executed: " + errno_text(number));
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !status_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::string ChildProcess::read_output() {
  std::string fresh;
  char piece[16384];
  while (output_) {
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
