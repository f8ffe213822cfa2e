#include "base/process/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/file.h"
#include "base/process/signals.h"

namespace hvd {
namespace {

/// The arguments of exec.  The parent prepares them, because the child must not allocate memory.
class Image {
 public:
  explicit Image(const ChildProgram& program) : words_(program.arguments) {
    for (std::string& word : words_) argv_.push_back(word.data());
    argv_.push_back(nullptr);
    if (!program.environment) return;
    variables_ = *program.environment;
    for (std::string& variable : variables_) envp_.push_back(variable.data());
    envp_.push_back(nullptr);
  }
  char** argv() { return argv_.data(); }
  char** envp() { return envp_.empty() ? environ : envp_.data(); }

 private:
  std::vector<std::string> words_, variables_;
  std::vector<char*> argv_, envp_;
};

/// Ctrl-C of the terminal does not reach the child.  A child of a process without a terminal stays in its session.  The
/// reason: Linux divides a core among sessions (autogroup).  Ranks in sessions of their own would wait milliseconds for
/// each other on busy cores.
void leave_terminal() {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) {
    ::setpgid(0, 0);
    return;
  }
  ::close(terminal);
  ::setsid();
}

struct Child {
  const ChildProgram& program;
  const std::function<void(const ChildNotes&)>& prepare;
  Image& image;
  pid_t parent;
  ChildNotes notes;

  [[noreturn]] void run() const {
    leave_terminal();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
    restore_signals();
    const int input = program.input >= 0 ? program.input : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input >= 0) ::dup2(input, STDIN_FILENO);
    if (program.output >= 0) ::dup2(program.output, STDOUT_FILENO);
    if (program.errors >= 0) ::dup2(program.errors, STDERR_FILENO);
    if (prepare) prepare(notes);
    environ = image.envp();
    if (program.search_path)
      ::execvpe(program.program.c_str(), image.argv(), environ);
    else
      ::execve(program.program.c_str(), image.argv(), environ);
    notes.fail(0, errno);
  }
};

/// Uses vfork(2), because fork(2) takes a millisecond to copy this process's page tables and pages.
pid_t start(const Child& child) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of this process runs in the child
  char** const own_variables = environ;
  const pid_t pid = ::vfork();
  if (pid == 0) child.run();
  const int error = errno;
  environ = own_variables;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace

void ChildNotes::say(int stage, int error) const {
  const ChildNote note{stage, error};
  while (::write(fd_, &note, sizeof note) < 0 && errno == EINTR) {}
}

void ChildNotes::fail(int stage, int error) const {
  say(-1 - stage, error);
  ::_exit(127);
}

StartedChild start_child(const ChildProgram& program, const std::function<void(const ChildNotes&)>& prepare) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0)
    throw Error(Code::unavailable, "pipe", errno_text(errno), "too many open files? see ulimit -n");
  const Fd notes(pipe[0]);
  Fd write_end(pipe[1]);
  Image image(program);
  StartedChild child;
  child.pid = start({program, prepare, image, ::getpid(), ChildNotes(write_end.get())});
  if (child.pid < 0) throw Error(Code::unavailable, "fork", errno_text(errno), "too many processes? see ulimit -u");
  write_end.reset();
  ChildNote note;
  for (ssize_t n; (n = ::read(notes.get(), &note, sizeof note)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof note) break;
    if (note.stage >= 0)
      child.notes.push_back(note);
    else
      child.failure = ChildNote{-1 - note.stage, note.error};
  }
  if (!child.failure) return child;
  while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {}
  child.pid = -1;
  return child;
}

std::size_t read_some(Fd& fd, std::string& text, std::size_t most, std::size_t count) {
  char piece[16384];
  const ssize_t n = ::read(fd.get(), piece, std::min(count, sizeof piece));
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) fd.reset();
  if (n <= 0) return 0;
  const auto size = static_cast<std::size_t>(n);
  text.append(piece, std::min(size, most - std::min(most, text.size())));
  return size;
}

}  // namespace hvd
