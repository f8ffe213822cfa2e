/// The guard's additions to a rank's last words: killed children, full folders, advice.
#include "rank/diagnostics/death/last_words.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "rank/diagnostics/death/death_facts.h"
#include "rank/diagnostics/death/killed_children.h"

using namespace hvd::rank;

namespace {

/// A child that ends by @p signal, or by exit(3) for 0, as a zombie.
pid_t zombie(int signal) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (signal != 0) {
      std::signal(signal, SIG_DFL);
      kill(getpid(), signal);
    }
    _exit(3);
  }
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  return pid;
}

}  // namespace

TEST_CASE("last words: children that a signal has killed, while they are zombies") {
  const pid_t killed = zombie(SIGKILL), ended = zombie(0), asked = zombie(SIGTERM);
  const auto found = killed_children(getpid());
  REQUIRE(found.size() == 1);
  CHECK(found.begin()->first == killed);
  CHECK(found.begin()->second.signal == SIGKILL);
  CHECK(killed_text(found) == "its process " + std::to_string(killed) + " (" + found.begin()->second.name +
                                  ") was killed by signal 9 (SIGKILL)");
  for (const pid_t pid : {killed, ended, asked}) waitpid(pid, nullptr, 0);
  CHECK(killed_children(getpid()).empty());
  CHECK(killed_text({}).empty());
  CHECK(killed_text({{7, {"a (b", SIGBUS}}, {8, {"c", SIGKILL}}}) ==
        "its process 7 (a (b) was killed by signal 7 (SIGBUS), 1 more likewise");
}

TEST_CASE("last words: advice for errors that do not explain themselves") {
  CHECK(hint_for("EOFError: EOF when reading a line\n", 0).find("--stdin") != std::string::npos);
  CHECK(hint_for("bdb.BdbQuit\n", 0).find("attach") != std::string::npos);
  CHECK(hint_for("MemoryError\n", 4LL << 30).find("4.0 GiB (ulimit -v)") != std::string::npos);
  CHECK(hint_for("MemoryError\n", 0).empty());
  CHECK(hint_for("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", 0).find("memory") !=
        std::string::npos);
  CHECK(hint_for("ValueError: boom\n", 4LL << 30).empty());
  CHECK(tells_full_disk("OSError: [Errno 28] No space left on device"));
  CHECK(tells_full_disk("RuntimeError: PytorchStreamWriter failed writing file data/0: file write failed"));
  CHECK(tells_full_disk("OSError: 1000000 requested and 131056 written"));
  CHECK_FALSE(tells_full_disk("ValueError: boom"));
}

TEST_CASE("last words: file systems of this host that can be written") {
  CHECK(local_mounts("/dev/vda / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\nserver:/a /home nfs4 rw 0 0\n"
                     "tmpfs /data tmpfs ro,nosuid 0 0\ntmpfs /scratch tmpfs rw,size=1024k 0 0\nbroken line\n"
                     "tmpfs /a\\040b tmpfs rw 0 0\n") == std::vector<std::string>{"/", "/scratch"});
}
