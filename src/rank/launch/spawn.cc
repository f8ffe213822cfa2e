#include "rank/launch/spawn.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/format.h"
#include "base/process/child.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

constexpr std::size_t most_interpreter_bytes = 256;  // of a "#!" line, by execve(2)

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw Error(Code::unavailable, "pipe", errno_text(errno));
  return {Fd(fds[0]), Fd(fds[1])};
}

/// The stages of the child's notes; 0 is a failed exec.
enum SpawnNote : int { exec_failed, no_folder, used_fallback, bound_otherwise, prefers_node };

/// The steps in the child before exec.  Only system calls are allowed there.
class Preparation {
 public:
  explicit Preparation(const ProcessSpec& launch) : launch_(launch) {
    int highest = 0;
    for (const int cpu : launch.cpus) highest = std::max(highest, cpu);
    mask_.resize(static_cast<std::size_t>(highest) / CPU_SETSIZE + 1);
    for (const int cpu : launch.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask_bytes(), mask_.data());
    if (launch.memory_node < 0) return;
    const auto node = static_cast<std::size_t>(launch.memory_node);
    nodes_.resize(node / bits_of_word + 1);
    nodes_[node / bits_of_word] = 1ul << node % bits_of_word;
  }

  void run(const ChildNotes& notes) {
    close_others();
    bind(notes);
    enter_folder(notes);
  }

 private:
  std::size_t mask_bytes() const { return mask_.size() * sizeof(cpu_set_t); }

  /// Marks all descriptors close-on-exec, except the standard streams and those of keep_fds.
  void close_others() const {
    constexpr long close_range = 436;  // on every architecture; the headers of an older C library lack the name
    constexpr unsigned cloexec = 4;  // CLOSE_RANGE_CLOEXEC; without it (before Linux 5.11), our descriptors are marked
    syscall(close_range, 3u, ~0u, cloexec);
    for (const int fd : launch_.keep_fds) fcntl(fd, F_SETFD, 0);
  }

  /// Binds the process to its cores.  If that fails, the rank is slower but correct: the note becomes a warning.
  void bind(const ChildNotes& notes) {
    if (launch_.cpus.empty()) return;
    if (sched_setaffinity(0, mask_bytes(), mask_.data()) != 0) return notes.say(bound_otherwise, errno);
    // A cgroup's cpuset reduces the mask without an error.
    if (sched_getaffinity(0, got_.size() * sizeof(cpu_set_t), got_.data()) < 0) return;
    for (std::size_t cpu = 0; cpu < mask_bytes() * 8; ++cpu)
      if (CPU_ISSET_S(cpu, mask_bytes(), mask_.data()) &&
          !CPU_ISSET_S(cpu, got_.size() * sizeof(cpu_set_t), got_.data()))
        return notes.say(bound_otherwise, 0);
    prefer_memory(notes);
  }

  /// Makes the kernel prefer memory of the rank's NUMA nodes.  If they are full, memory comes from other nodes.  Keeps
  /// a policy that the user has set (numactl).
  void prefer_memory(const ChildNotes& notes) const {
    int policy = MPOL_DEFAULT;
    if (nodes_.empty() || syscall(SYS_get_mempolicy, &policy, nullptr, 0ul, nullptr, 0ul) != 0) return;
    if (policy != MPOL_DEFAULT) return;
    // The kernel reads one bit fewer than the given number.
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes_.data(), nodes_.size() * bits_of_word + 1) == 0)
      notes.say(prefers_node, 0);
  }

  void enter_folder(const ChildNotes& notes) const {
    if (launch_.cwd.empty() || chdir(launch_.cwd.c_str()) == 0) return;
    const int error = errno;
    if (launch_.fallback_cwd.empty() || chdir(launch_.fallback_cwd.c_str()) != 0) notes.fail(no_folder, error);
    notes.say(used_fallback, error);
  }

  const ProcessSpec& launch_;
  static constexpr std::size_t bits_of_word = 8 * sizeof(unsigned long);
  std::vector<cpu_set_t> mask_;
  std::vector<unsigned long> nodes_;                         ///< a bit for the preferred node; empty: none
  std::vector<cpu_set_t> got_ = std::vector<cpu_set_t>(16);  ///< the kernel's mask, up to 16384 CPUs
};

/// Throws if the program exists.  Then execve(2) did not find the program that runs it.
void need_interpreter(const ProcessSpec& launch) {
  const std::string& name = launch.program;
  if (name.find('/') == std::string::npos) return;
  const std::string path = name[0] == '/' || launch.cwd.empty() ? name : launch.cwd + "/" + name;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return;
  std::string line(most_interpreter_bytes, '\0');
  const ssize_t size = read(file.get(), line.data(), line.size());
  line.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  if (!line.starts_with("#!"))
    throw Error(Code::unavailable, "", formatted("cannot run {}: its dynamic loader is not on this host", name),
                "is it built for another system? file " + name);
  line.resize(std::min(line.find('\n'), line.size()));
  throw Error(Code::unavailable, "",
              formatted("cannot run {}: its first line names no program of this host: {}", name, trim(line)),
              line.ends_with('\r') ? "its lines end as on Windows; sed -i 's/\\r$//' " + name + " changes them"
                                   : "correct that line, or install the program");
}

[[noreturn]] void fail(const ProcessSpec& launch, const ChildNote& note) {
  if (note.stage == no_folder)
    throw Error(Code::unavailable, "",
                formatted("cannot enter the working folder {}: {}", launch.cwd, errno_text(note.error)));
  if (note.error == ENOENT) need_interpreter(launch);
  if (note.error == ENOENT)
    throw Error(Code::unavailable, "", "command not found: " + launch.program,
                "is it installed on this host, and in PATH?");
  throw Error(Code::unavailable, "", formatted("cannot run {}: {}", launch.program, errno_text(note.error)),
              note.error == EACCES ? "make it executable (chmod +x), or write: -- sh " + launch.program : "");
}

}  // namespace

SpawnedProcess spawn(const ProcessSpec& launch) {
  Pipe out = make_pipe(), err = make_pipe();
  // As under mpirun, a rank with input gets a pipe, and the other ranks get /dev/null.
  Pipe in = launch.input ? make_pipe() : Pipe{};
  std::vector<std::string> variables;
  for (const auto& [name, value] : launch.env) variables.push_back(name + "=" + value);
  Preparation preparation(launch);
  const StartedChild child = start_child({.program = launch.program,
                                          .arguments = launch.argv,
                                          .search_path = true,
                                          .environment = std::move(variables),
                                          .input = in.read.get(),
                                          .output = out.write.get(),
                                          .errors = err.write.get()},
                                         [&](const ChildNotes& notes) { preparation.run(notes); });
  if (child.failure) fail(launch, *child.failure);
  SpawnedProcess s;
  s.pid = child.pid;
  for (const ChildNote& note : child.notes) {
    s.used_fallback_cwd |= note.stage == used_fallback;
    s.prefers_node |= note.stage == prefers_node;
    s.bound_otherwise |= note.stage == bound_otherwise;
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
