/// @file process_test.cc — one walk over /proc, the tree of processes below this one, the other end of a socket.
#include "base/process/process.h"

#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/file.h"
#include "base/process/maker.h"

using namespace hvd;

namespace {

/// A child with that name, which sleeps until it is killed. @p below: it starts a child of its own first.
pid_t sleeping_child(const char* name, bool below = false) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_NAME, name);
    if (below && ::fork() == 0) ::prctl(PR_SET_NAME, "below");
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "1", 1);
    for (;;) ::pause();
  }
  char byte;
  for (int i = 0; i < (below ? 2 : 1); ++i) REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]), ::close(ready[1]);
  return pid;
}

bool holds(const std::vector<pid_t>& list, pid_t pid) { return std::find(list.begin(), list.end(), pid) != list.end(); }

}  // namespace

TEST_CASE("a process runs this program, or another one") {
  const pid_t same = sleeping_child("same"), other = ::fork();
  if (other == 0) ::execlp("sleep", "sleep", "60", nullptr), ::_exit(127);
  CHECK(runs_this_program(::getpid()));
  CHECK(runs_this_program(same));
  bool is_other = false;
  for (int i = 0; i < 1000 && !is_other; ++i, ::usleep(10'000)) is_other = !runs_this_program(other);
  CHECK(is_other);
  for (const pid_t pid : {same, other}) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  CHECK_FALSE(runs_this_program(same));
}

TEST_CASE("a process: a name with brackets and blanks, its parent, its end") {
  const pid_t child = sleeping_child("a ) (b) 7 S");
  const auto entry = process_entry(child);
  REQUIRE(entry);
  CHECK(entry->name == "a ) (b) 7 S");
  CHECK(entry->parent == ::getpid());
  CHECK(entry->threads == 1);
  CHECK(entry->start_ticks > 0);
  CHECK(all_processes().contains(child));
  CHECK(holds(children_of(::getpid()), child));
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  const auto zombie = process_entry(child);
  REQUIRE(zombie);
  CHECK(zombie->is_zombie());
  CHECK(WTERMSIG(zombie->exit_status) == SIGKILL);
  CHECK(process_name(child).empty());
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(process_entry(child));
}

TEST_CASE("all below this process end, except the spared ones and those below them") {
  become_subreaper();
  const pid_t kept = sleeping_child("kept", true), killed = sleeping_child("killed", true);
  const std::vector<pid_t> below_kept = descendants(kept);
  REQUIRE(below_kept.size() == 1);
  KilledProcesses names;
  kill_descendants_once(&names, {kept});
  CHECK(names.at(killed) == "killed");
  CHECK(names.size() == 2);
  CHECK(process_name(kept) == "kept");
  CHECK(process_name(below_kept.front()) == "below");
  names.clear();
  CHECK(kill_descendants(std::chrono::seconds(10), &names));
  CHECK(names.contains(kept));
  CHECK(names.contains(below_kept.front()));
  CHECK(descendants(::getpid()).empty());
}

TEST_CASE("the other end of a socket") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Fd one(ends[0]), other(ends[1]);
  REQUIRE(peer_of(one.get()));
  CHECK(peer_of(one.get())->pid == ::getpid());
  CHECK(is_of_this_user(one.get()));
  CHECK_FALSE(is_of_this_user(-1));
}
