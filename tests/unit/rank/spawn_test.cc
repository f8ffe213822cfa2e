/// Spawning and killing real processes.
#include "rank/launch/spawn.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "base/process/process.h"
#include "rank/diagnostics/death/oom.h"
#include "rank/launch/payload_store.h"

using namespace hvd;
using namespace hvd::rank;

namespace {

ProcessSpec shell(const std::string& script) {
  ProcessSpec l;
  l.program = "sh";
  l.argv = {"sh", "-c", script};
  l.env = {{"PATH", "/usr/bin:/bin"}, {"GREETING", "hello"}};
  l.cwd = "/";
  return l;
}

/// Reads to the end, for at most ten seconds.
std::string read_all(const Fd& fd) {
  std::string out;
  char buffer[4096];
  for (;;) {
    pollfd p{fd.get(), POLLIN, 0};
    REQUIRE(poll(&p, 1, 10000) == 1);
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n <= 0) return out;
    out.append(buffer, static_cast<std::size_t>(n));
  }
}

int wait_status(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

std::string why(const ProcessSpec& l) {
  try {
    const SpawnedProcess s = spawn(l);
    wait_status(s.pid);
  } catch (const Error& e) { return e.what(); }
  return "started";
}

}  // namespace

TEST_CASE("spawn: environment, folder, process group, streams, mask and descriptors are the rank's own") {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  signal(SIGPIPE, SIG_IGN);
  const int leak = open("/dev/null", O_RDONLY);
  ProcessSpec l = shell(
      "echo $GREETING $PWD; echo to-err >&2; ps -o pgid= -p $$ | tr -d ' '; echo $$; ls /proc/self/fd | wc -l; "
      "grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '[:space:]'");
  l.cpus = {};
  const SpawnedProcess s = spawn(l);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  close(leak);
  const std::string pid = std::to_string(s.pid);
  // Four descriptors: the standard streams and ls's own.
  CHECK(read_all(s.out) == "hello /\n" + pid + "\n" + pid + "\n4\nSigBlk:0000000000000000SigIgn:0000000000000000");
  CHECK(read_all(s.err) == "to-err\n");
  CHECK(wait_status(s.pid) == 0);
}

TEST_CASE("spawn: memory of a node is preferred, unless the user has chosen otherwise") {
  std::ifstream maps("/proc/self/numa_maps");
  if (!maps) {
    MESSAGE("this kernel has no NUMA");
    return;
  }
  ProcessSpec l = shell("head -n 1 /proc/self/numa_maps | cut -d ' ' -f 2");
  cpu_set_t mask;
  REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) l.cpus.push_back(cpu);
  const auto policy = [&](int node, bool preferred) {
    l.memory_node = node;
    const SpawnedProcess s = spawn(l);
    CHECK(s.prefers_node == preferred);
    const std::string told = read_all(s.out);
    CHECK(wait_status(s.pid) == 0);
    return told;
  };
  CHECK(policy(0, true) == "prefer:0\n");
  CHECK(policy(-1, false) == "default\n");
  CHECK(policy(70, false) == "default\n");  // there is no such node
  const unsigned long nodes = 1;
  REQUIRE(syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &nodes, 65) == 0);
  CHECK(policy(0, false) == "interleave:0\n");
  REQUIRE(syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0);
}

TEST_CASE("spawn: what cannot run is named") {
  ProcessSpec l = shell("true");
  l.program = "no-such-program";
  CHECK(why(l) == "command not found: no-such-program");
  l.program = "/etc/passwd";
  CHECK(why(l) == "cannot run /etc/passwd: Permission denied");
  l = shell("true");
  l.cwd = "/no/such/folder";
  CHECK(why(l) == "cannot enter the working folder /no/such/folder: No such file or directory");
  l.fallback_cwd = "/";
  const SpawnedProcess s = spawn(l);
  CHECK(s.used_fallback_cwd);
  CHECK(wait_status(s.pid) == 0);
  l.fallback_cwd = "/nor/this";
  CHECK(why(l).starts_with("cannot enter"));
}

TEST_CASE("descendants: setsid, double forks and an empty environment do not help") {
  become_subreaper();
  const SpawnedProcess s = spawn(shell(
      "(setsid sleep 300 &) ; env -i setsid sh -c 'sleep 300 & sleep 300' & nohup sleep 300 & sleep 0.3; echo ready"));
  pollfd p{s.out.get(), POLLIN, 0};
  REQUIRE(poll(&p, 1, 10000) == 1);
  CHECK(descendants(getpid()).size() >= 4);
  CHECK(kill_descendants(std::chrono::seconds(5)));
  CHECK(descendants(getpid()).empty());
}

TEST_CASE("payload: sealed, readable through its path, nothing on disk") {
  PayloadStore store;
  store.add("abc");
  store.add("def");
  store.seal();
  CHECK(store.bytes() == 6);
  std::ifstream file(store.path());
  std::string text;
  file >> text;
  CHECK(text == "abcdef");
  CHECK(write(store.fd(), "x", 1) < 0);
  CHECK_THROWS_AS(store.add("x"), Error);
}

/// A process that has just been killed and is not reaped.
pid_t killed_process() {
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  kill(pid, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  return pid;
}

TEST_CASE("oom: a SIGKILL of ours is none") {
  const MemoryGroup before = memory_group(getpid());
  KernelLog log;
  const pid_t pid = killed_process();
  CHECK(oom_verdict(pid, before, log, 1 << 20).text.empty());
  waitpid(pid, nullptr, 0);
}

TEST_CASE("oom: a record of the kernel's log counts only if it was written after the start of the rank") {
  const Fd writer(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
  if (!writer || !KernelLog().complete()) {
    MESSAGE("skipped: this user may not write to the kernel's log, or is in a process namespace");
    return;
  }
  const pid_t pid = killed_process();
  const std::string record = formatted("hvd-test: Killed process {} (none)\n", pid);
  const MemoryGroup before = memory_group(getpid());
  REQUIRE(write(writer.get(), record.data(), record.size()) > 0);
  KernelLog log;
  CHECK(oom_verdict(pid, before, log, 1 << 20).text.empty());
  REQUIRE(write(writer.get(), record.data(), record.size()) > 0);
  CHECK(oom_verdict(pid, before, log, 1 << 20).at_us >= 0);
  waitpid(pid, nullptr, 0);
}

TEST_CASE("oom: kills of other processes of the group do not count if the log is complete") {
  KernelLog log;
  if (!log.complete()) return;
  MemoryGroup before = memory_group(getpid());
  before.kills -= 1;  // one process of the group was killed meanwhile
  const pid_t pid = killed_process();
  CHECK(oom_verdict(pid, before, log, 1 << 20).text.empty());
  waitpid(pid, nullptr, 0);
}
