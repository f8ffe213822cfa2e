#include "rank/launch/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/format.h"
#include "base/process/signals.h"

namespace hvd::rank {
namespace {

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw Error(Code::unavailable, "pipe", errno_text(errno));
  return {Fd(fds[0]), Fd(fds[1])};
}

enum class SpawnStage : int { cwd_fallback, cwd, exec, bound_otherwise };
/// What the child says before, or instead of, its exec.
struct ChildError {
  SpawnStage stage;
  int error;
};

/// Only async-signal-safe calls: the guard has threads (ZeroMQ's) when it forks, and its memory is the child's until
/// exec.
class Child {
 public:
  Child(const ProcessSpec& launch, int in, int out, int err, int notes, pid_t guard)
      : launch_(launch), in_(in), out_(out), err_(err), notes_(notes), guard_(guard) {
    for (const std::string& a : launch.argv) argv_.push_back(const_cast<char*>(a.c_str()));
    argv_.push_back(nullptr);
    for (const auto& [name, value] : launch.env) variables_.push_back(name + "=" + value);
    for (std::string& v : variables_) envp_.push_back(v.data());
    envp_.push_back(nullptr);
    int highest = 0;
    for (const int cpu : launch.cpus) highest = std::max(highest, cpu);
    mask_.resize(static_cast<std::size_t>(highest) / CPU_SETSIZE + 1);
    for (const int cpu : launch.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask_bytes(), mask_.data());
  }

  [[noreturn]] void run() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard_) _exit(127);
    setsid();
    restore_signals();
    if (in_ >= 0) dup2(in_, STDIN_FILENO);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
    close_others();
    bind();
    enter_folder();
    environ = envp_.data();
    execvpe(launch_.program.c_str(), argv_.data(), envp_.data());
    say(SpawnStage::exec, errno);
    _exit(127);
  }

 private:
  std::size_t mask_bytes() const { return mask_.size() * sizeof(cpu_set_t); }

  void say(SpawnStage stage, int error) const {
    const ChildError note{stage, error};
    while (write(notes_, &note, sizeof note) < 0 && errno == EINTR) {}
  }

  /// Marks all but the standard streams close-on-exec, then those to keep as kept.
  void close_others() const {
#ifdef SYS_close_range
    constexpr unsigned cloexec = 4;  // CLOSE_RANGE_CLOEXEC; fails before Linux 5.11, where ours are marked anyway
    syscall(SYS_close_range, 3u, ~0u, cloexec);
#endif
    for (const int fd : launch_.keep_fds) fcntl(fd, F_SETFD, 0);
  }

  /// Best effort, for it is about speed and not meaning; but somebody should know.
  void bind() {
    if (launch_.cpus.empty()) return;
    if (sched_setaffinity(0, mask_bytes(), mask_.data()) != 0) return say(SpawnStage::bound_otherwise, errno);
    // A cgroup's cpuset narrows the mask silently.
    if (sched_getaffinity(0, got_.size() * sizeof(cpu_set_t), got_.data()) < 0) return;
    for (std::size_t cpu = 0; cpu < mask_bytes() * 8; ++cpu)
      if (CPU_ISSET_S(cpu, mask_bytes(), mask_.data()) &&
          !CPU_ISSET_S(cpu, got_.size() * sizeof(cpu_set_t), got_.data()))
        return say(SpawnStage::bound_otherwise, 0);
  }

  void enter_folder() const {
    if (launch_.cwd.empty() || chdir(launch_.cwd.c_str()) == 0) return;
    const int error = errno;
    if (!launch_.fallback_cwd.empty() && chdir(launch_.fallback_cwd.c_str()) == 0) {
      say(SpawnStage::cwd_fallback, error);
      return;
    }
    say(SpawnStage::cwd, error);
    _exit(127);
  }

  const ProcessSpec& launch_;
  const int in_, out_, err_, notes_;
  const pid_t guard_;
  std::vector<char*> argv_, envp_;
  std::vector<std::string> variables_;
  std::vector<cpu_set_t> mask_, got_ = std::vector<cpu_set_t>(16);  ///< got_: as the kernel has it, up to 16384 CPUs
};

/// vfork: a copy of the guard's page tables, and of the pages that both write then, costs more than the rest of it.
pid_t start(Child& child) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of the guard runs in the child
  char** const own_variables = environ;
  const pid_t pid = vfork();
  if (pid == 0) child.run();
  const int error = errno;
  environ = own_variables;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

[[noreturn]] void fail(const ProcessSpec& launch, const ChildError& note) {
  if (note.stage == SpawnStage::cwd)
    throw Error(Code::unavailable, "",
                formatted("cannot enter the working folder {}: {}", launch.cwd, errno_text(note.error)));
  if (note.error == ENOENT)
    throw Error(Code::unavailable, "", "command not found: " + launch.program,
                "is it installed on this host, and in PATH?");
  throw Error(Code::unavailable, "", formatted("cannot run {}: {}", launch.program, errno_text(note.error)),
              note.error == EACCES ? "make it executable (chmod +x), or write: -- sh " + launch.program : "");
}

}  // namespace

SpawnedProcess spawn(const ProcessSpec& launch) {
  Pipe out = make_pipe(), err = make_pipe(), notes = make_pipe();
  // mpirun gives its rank 0 a pipe, and the others /dev/null.
  Pipe in = launch.input ? make_pipe() : Pipe{Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)), Fd()};
  Child child(launch, in.read.get(), out.write.get(), err.write.get(), notes.write.get(), getpid());
  SpawnedProcess s;
  s.pid = start(child);
  if (s.pid < 0) throw Error(Code::unavailable, "fork", errno_text(errno));
  notes.write.reset();
  ChildError note{};
  ssize_t n;
  while ((n = read(notes.read.get(), &note, sizeof note)) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n == sizeof note && note.stage == SpawnStage::cwd_fallback) {
      s.used_fallback_cwd = true;
      continue;
    }
    if (n == sizeof note && note.stage == SpawnStage::bound_otherwise) {
      s.bound_otherwise = true;
      continue;
    }
    waitpid(s.pid, nullptr, 0);
    if (n < 0) throw Error(Code::internal, "fork", errno_text(errno));
    fail(launch, note);
  }
  fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  if (in.write) fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  s.in = std::move(in.write);
  s.out = std::move(out.read);
  s.err = std::move(err.read);
  return s;
}

}  // namespace hvd::rank
