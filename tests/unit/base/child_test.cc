/// Starting other programs, and capturing their output.
#include "base/process/child.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>

#include "base/process/capture.h"

using namespace hvd;
using namespace std::chrono_literals;

TEST_CASE("capture: input, both outputs and the exit code") {
  const CaptureResult done = capture({"sh", "-c", "cat; echo said >&2; exit 3"}, "given", 60s);
  CHECK(done.started);
  CHECK(done.out == "given");
  CHECK(done.err == "said\n");
  CHECK(done.code == 3);
  CHECK_FALSE(done.ok());
  CHECK(capture({"sh", "-c", "kill -9 $$"}, "", 60s).code == 128 + SIGKILL);
}

TEST_CASE("capture: a program that does not exist, and one that does not end") {
  const CaptureResult none = capture({"hvd-no-such-program"}, "", 60s);
  CHECK_FALSE(none.started);
  CHECK(none.err == "No such file or directory");
  const CaptureResult late = capture({"sh", "-c", "sleep 100 & wait"}, "", 50ms);
  CHECK(late.timed_out);
  CHECK(late.code == 128 + SIGKILL);
}

TEST_CASE("capture: processes that a program leaves behind are not waited for") {
  const auto before = std::chrono::steady_clock::now();
  const CaptureResult done = capture({"sh", "-c", "sleep 60 & yes & echo $!; echo said >&2"}, "", 60s);
  CHECK(std::chrono::steady_clock::now() - before < 40s);
  CHECK(done.ok());
  CHECK(done.err == "said\n");
  ::kill(std::stoi(done.out.substr(done.out.find_first_of("0123456789"))), SIGKILL);
}

TEST_CASE("capture: a program that closes its streams and goes on is ended at the limit") {
  const auto before = std::chrono::steady_clock::now();
  CHECK(capture({"sh", "-c", "exec >&- 2>&-; sleep 60"}, "", 1s).timed_out);
  CHECK(std::chrono::steady_clock::now() - before < 45s);
}

TEST_CASE("child: it leads a process group; without a terminal it stays in this session") {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) ::close(terminal);
  std::istringstream ids(capture({"sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat"}, "", 60s).out);
  pid_t pid = 0, group = 0, session = 0;
  ids >> pid >> group >> session;
  REQUIRE(bool(ids));
  CHECK(group == pid);
  CHECK(session == (terminal >= 0 ? pid : ::getsid(0)));
}

TEST_CASE("child: notes come before exec; a failed preparation leaves no child") {
  ChildProgram shell{.program = "/bin/sh", .arguments = {"sh", "-c", "test \"$ONLY\" = one"}};
  shell.environment = {"ONLY=one"};
  const StartedChild runs = start_child(shell, [](const ChildNotes& notes) { notes.say(3, ENOENT); });
  REQUIRE(runs.pid > 0);
  REQUIRE(runs.notes.size() == 1);
  CHECK(runs.notes[0].stage == 3);
  int status = -1;
  CHECK(::waitpid(runs.pid, &status, 0) == runs.pid);
  CHECK(status == 0);
  const StartedChild fails = start_child(shell, [](const ChildNotes& notes) { notes.fail(2, EACCES); });
  CHECK(fails.pid == -1);
  REQUIRE(fails.failure);
  CHECK(fails.failure->stage == 2);
  CHECK(fails.failure->error == EACCES);
  shell.program = "sh";  // no path, and no search
  CHECK(start_child(shell).failure->stage == 0);
}

TEST_CASE("read_some: up to a count, beyond the most bytes, nothing yet, the end") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  Fd reader(ends[0]), writer(ends[1]);
  REQUIRE(write_all(writer.get(), "0123456789"));
  std::string text = "a";
  CHECK(read_some(reader, text, 100, 4) == 4);
  CHECK(text == "a0123");
  CHECK(read_some(reader, text, 7) == 6);
  CHECK(text == "a012345");  // 6 to 9 are dropped
  CHECK(read_some(reader, text, 7) == 0);
  CHECK(reader);
  writer.reset();
  CHECK(read_some(reader, text, 7) == 0);
  CHECK_FALSE(reader);
}
