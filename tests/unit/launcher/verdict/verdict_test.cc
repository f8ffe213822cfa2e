#include "launcher/verdict/verdict.h"

#include <doctest/doctest.h>

#include <csignal>

#include "base/error.h"
#include "base/text.h"
#include "launcher/mpirun/mpirun_output.h"
#include "launcher/remote/start_failure.h"
#include "launcher/start/starter_output.h"
#include "launcher/verdict/cleanup_report.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::Cause;

namespace {

wire::DeathRecord death(int rank, Cause cause, int code, std::int64_t time) {
  wire::DeathRecord d;
  d.rank = rank, d.host = "h" + std::to_string(rank), d.cause = cause, d.code = code, d.time_ns = time;
  return d;
}
std::string text(const Verdict& v) { return std::to_string(v.exit_code) + "\n" + join(v.lines, "\n"); }

}  // namespace

TEST_CASE("verdict: the first failure by time is the cause, whoever was heard of first") {
  CHECK(text(judge({death(0, Cause::exited, 1, 20), death(1, Cause::signalled, SIGKILL, 10),
                    death(2, Cause::stopped, 143, 30), death(3, Cause::finished, 0, 5)},
                   4, {})) ==
        "137\nhvdrun: rank 1 on h1 was killed by signal 9 (SIGKILL)\n"
        "        rank 0 failed after it, rank 3 finished before, rank 2 was stopped\n"
        "        a user or the kernel killed it; the kernel does so when memory runs out (see dmesg on h1)");
  CHECK(text(judge({death(0, Cause::finished, 0, 1), death(1, Cause::finished, 0, 2)}, 2, {})) == "0\n");
}

TEST_CASE("verdict: it says what to do next if no other text does") {
  CHECK(text(judge({death(0, Cause::oom, SIGKILL, 1)}, 1, {})).find("        give h0 fewer ranks (-H h0:n)") !=
        std::string::npos);
  CHECK(
      text(judge({death(0, Cause::vanished, 0, 1)}, 1, {})).ends_with("        is h0 well? try: hvdrun doctor -H h0"));
  wire::DeathRecord lacking = death(0, Cause::exited, 1, 1);
  lacking.traceback = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n";
  CHECK(text(judge({lacking}, 1, {})).find("        install it on h0; hvdrun doctor") != std::string::npos);
  const auto advised = [&](const std::string& name) {
    lacking.traceback = "ModuleNotFoundError: No module named '" + name;
    return text(judge({lacking}, 1, {}));
  };
  CHECK(advised("tensorflow.data.old'")
            .ends_with("        tensorflow is there on h0, but without it: another version of "
                       "tensorflow may have it"));
  CHECK(advised("horovod'").find("        install it on h0") != std::string::npos);
  CHECK(advised("hvd.numpy'; 'hvd' is not a package")
            .find("a file hvd.py, perhaps beside the script, hides the package") != std::string::npos);
  CHECK(advised("horovod.nothing'").find("otherwise hvdrun has no such module, and none can be installed") !=
        std::string::npos);
  CHECK(advised("sparkdl.x'").find("install it on") == std::string::npos);
  wire::DeathRecord silent = death(0, Cause::exited, 1, 1);
  silent.phase = "python";
  CHECK(text(judge({silent}, 1, {})).find("        it wrote nothing") != std::string::npos);
  EndReason ended;
  ended.mpirun_said =
      first_words("----\n\n[h0:7] ORTE_ERROR_LOG: Out of resource\nMPI_INIT has failed\n\x01 ---\n  Requested: 4 B\n");
  CHECK(text(judge({silent}, 1, ended)) ==
        "1\nhvdrun: rank 0 on h0 ended with exit code 1\n        it wrote nothing, but mpirun said:\n"
        "          MPI_INIT has failed\n          Requested: 4 B");
  CHECK(first_words("mpirun has exited due to process rank 0 calling abort\n").empty());
  CHECK(first_words("[h0:7] ORTE_ERROR_LOG: Out of resource in file show_help.c at line 5\n").size() == 1);
  silent.tail = {"last words"};
  CHECK(text(judge({silent}, 1, {})) == "1\nhvdrun: rank 0 on h0 ended with exit code 1");
}

TEST_CASE("verdict: the exception's last line is in the sentence") {
  wire::DeathRecord d = death(0, Cause::exited, 3, 1);
  d.traceback = "Traceback (most recent call last):\n  File\nValueError: boom\n";
  const Verdict v = judge({d}, 1, {});
  CHECK(text(v) == "3\nhvdrun: rank 0 on h0 ended with exit code 3 (ValueError: boom)");
  CHECK(v.first_cause->traceback == d.traceback);
}

TEST_CASE("verdict: a rank that left while others waited for it is named first") {
  wire::DeathRecord failed = death(0, Cause::exited, 1, 1);
  failed.traceback = "Traceback (most recent call last):\nhvd.exceptions.HorovodInternalError: in whatever words\n";
  CHECK(
      text(judge({failed, death(1, Cause::finished, 0, 2)}, 2, {})).starts_with("1\nhvdrun: rank 0 on h0 ended with"));
  failed.failure = wire::Failure{static_cast<int>(Code::peer_lost), 1, "grad"};
  CHECK(text(judge({failed, death(1, Cause::finished, 0, 2)}, 2, {}))
            .starts_with("1\nhvdrun: rank 1 on h1 left the job while others still waited for it\n        does it have "
                         "fewer steps, or end early?  hvd.join() lets"));
  failed.failure->operation = "c10d/world #10";
  CHECK(text(judge({failed, death(1, Cause::finished, 0, 2)}, 2, {})).find("  DistributedDataParallel.join() lets") !=
        std::string::npos);
  // A rank that a signal ended does not end because another one is missing.
  wire::DeathRecord killed = failed;
  killed.cause = Cause::signalled, killed.code = 9, killed.traceback.clear();
  CHECK(text(judge({killed, death(1, Cause::finished, 0, 2)}, 2, {})).starts_with("137\nhvdrun: rank 0 on h0 was"));
  // Rank 1 failed too, later by the clock: rank 0's earlier failure is the cause.
  CHECK(text(judge({failed, death(1, Cause::exited, 4, 2)}, 2, {})).starts_with("1\nhvdrun: rank 0 on h0 ended with"));
}

TEST_CASE("verdict: a rank that left while others waited for it over gloo") {
  wire::DeathRecord lost = death(0, Cause::exited, 1, 1);
  lost.traceback =
      "Traceback (most recent call last):\n  File\nRuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/"
      "pair.cc:5] Connection closed by peer [127.0.0.1]:43151\n";
  CHECK(text(judge({lost, death(2, Cause::finished, 0, 3), death(1, Cause::finished, 0, 2)}, 3, {}))
            .starts_with("1\nhvdrun: rank 1 on h1 left the job while others still waited for it\n        does it have "
                         "fewer steps, or end early?  DistributedDataParallel.join() lets"));
  // gloo's error blames no rank if no rank finished, or if a signal ended another rank.
  CHECK(text(judge({lost, death(1, Cause::stopped, 0, 2)}, 2, {})).starts_with("1\nhvdrun: rank 0 on h0 ended with"));
  CHECK(text(judge({lost, death(1, Cause::finished, 0, 2), death(2, Cause::signalled, 9, 3)}, 3, {}))
            .starts_with("1\nhvdrun: rank 0 on h0 ended with"));
  // monitored_barrier() has gloo's error in a later line.
  wire::DeathRecord barrier = lost;
  barrier.traceback =
      "Traceback (most recent call last):\n  File\nRuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in "
      "1800000 ms\n Original exception: \n[/pytorch/gloo/transport/tcp/pair.cc:5] Connection closed by peer [::1]:4\n";
  CHECK(text(judge({barrier, death(1, Cause::finished, 0, 2)}, 2, {})).starts_with("1\nhvdrun: rank 1 on h1 left the"));
  lost.traceback = "Traceback (most recent call last):\n  File\nConnectionError: Connection closed by peer\n";
  CHECK(text(judge({lost, death(1, Cause::finished, 0, 2)}, 2, {})).starts_with("1\nhvdrun: rank 0 on h0 ended with"));
}

TEST_CASE("verdict: interruption and mpirun's death") {
  CHECK(text(judge({death(0, Cause::stopped, 130, 1)}, 1, {.signal = SIGINT})) ==
        "130\nhvdrun: interrupted; all ranks have ended");
  CHECK(text(judge({death(0, Cause::vanished, 0, 1)}, 1,
                   {.starter_fault = "was killed by signal 9 (SIGKILL)", .starter_code = 137})) ==
        "137\nhvdrun: mpirun was killed by signal 9 (SIGKILL) while the job was running; all ranks have ended");
}

TEST_CASE("verdict: mpirun's reaction to a rank's silent exit is not told as what MPI said") {
  const std::string reaction =
      "-----\nmpirun has exited due to process rank 0 with PID 0 on\nnode a exiting improperly. There are three "
      "reasons:\n"
      "3. this process called \"MPI_Abort\" or \"orte_abort\"\n-----\n";
  CHECK(first_words(reaction).empty());
  CHECK(first_words("-----\nMPI_INIT has failed\n-----\n" + reaction) ==
        std::vector<std::string>{"MPI_INIT has failed"});
}

TEST_CASE("start: of much that was said, the line that names the fault is kept") {
  std::string text = "ssh: connect to host n2 port 22: Connection refused\n";
  for (int i = 0; i < 40; ++i) text += "general advice " + std::to_string(i) + "\n";
  const std::vector<std::string> kept = telling_lines(text, 5);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0] == "ssh: connect to host n2 port 22: Connection refused");
  CHECK(kept[2] == "general advice 39");
  CHECK(telling_lines("a\n\n---\nb\n", 5) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("start: what ssh says is told with the host and the way out") {
  StartFailureFacts facts;
  facts.absent_hosts = {"n2"};
  facts.absent_ranks = {2, 3};
  facts.starter_end = "ended with exit code 213";
  auto said = [&](const char* log) {
    facts.ssh_logs["n2"] = log;
    const Error e = start_failure(facts);
    return std::string(e.what()) + " (" + e.hint + ")";
  };
  CHECK(said("No ECDSA host key is known\nHost key verification failed.\n") ==
        "the ssh key of n2 is not known here (ssh n2 once by hand and accept its key\n"
        "        it said: Host key verification failed.)");
  CHECK(said("root@n2: Permission denied (publickey).\n").starts_with("n2 refused the ssh login"));
  CHECK(said("sh: 1: orted: not found").starts_with("Open MPI is not installed on n2"));
  facts.ssh_logs.clear();
  facts.starter_output = "-----\n  strange words\n-----\n";
  CHECK(std::string(start_failure(facts).what()) ==
        "start: mpirun ended with exit code 213 before ranks 2-3 on n2 came up\n        mpirun: strange words");
  facts.ssh_logs["n2"] = "strange words\n";
  CHECK(std::string(start_failure(facts).what()) ==
        "start: mpirun ended with exit code 213 before ranks 2-3 on n2 came up\n        n2: strange words");
  facts.ssh_logs.clear();
  facts.starter_output.clear();
  CHECK(start_failure(facts).hint ==
        "look there: ssh n2 echo well; a start file of the shell, such as ~/.bashrc, may end it");
  facts.timed_out = true;
  facts.waited_seconds = 30;
  facts.starter_output.clear();
  CHECK(std::string(start_failure(facts).what()) == "start: ranks 2-3 on n2 did not come up within 30 s");
  CHECK(start_failure(facts).code == Code::timeout);
}

TEST_CASE("start: why one host's daemon has not come, in a line") {
  const std::string refused = "ssh: connect to host n2 port 22: Connection refused";
  CHECK(why_no_daemon("n2", refused + "\r\n", 255 << 8) == "nothing listens for ssh on n2 (" + refused + ")");
  CHECK(why_no_daemon("n2", "", 255 << 8) == "the shell there ended with exit code 255");
  CHECK(why_no_daemon("n2", "sh: 3: hvdrank: gone\n", 127 << 8) ==
        "the shell there ended with exit code 127 (sh: 3: hvdrank: gone)");
  CHECK(why_no_daemon("n2", "", SIGKILL) == "the shell there was killed by signal 9");
  CHECK(why_no_daemon("n2", "", {}) == "it has not answered");
}

TEST_CASE("verdict: a rank that leaves because it was told to is not called killed") {
  wire::DeathRecord d = death(1, Cause::signalled, SIGTERM, 1);
  CHECK(story(d) == "was killed by signal 15 (SIGTERM)");
  d.phase = wire::leaving_phase;
  CHECK(story(d) == "ended properly after SIGTERM");
  d.cause = Cause::vanished, d.text = "it was ended from outside";  // SIGTERM went to its guard
  CHECK(story(d) == "ended properly after SIGTERM");
  d.code = SIGKILL;
  CHECK(story(d) == "is lost: it was ended from outside");
}

TEST_CASE("verdict: the time limit") {
  EndReason ended;
  ended.time_limit_seconds = 1.5;
  CHECK(text(judge({death(0, Cause::stopped, 143, 1)}, 1, ended)) ==
        "6\nhvdrun: the time limit of 1.5 s was reached; all ranks have ended");
}

TEST_CASE("clean-up: what was left is told host by host; what could not be looked at is trouble") {
  const std::map<std::string, HostCleanup> hosts{{"h1", {true, {{"sleep", "sh", "sleep"}, {"vader_segment.h1"}, {}}}},
                                                 {"h2", {true, {}}},
                                                 {"h3", {true, {{}, {}, {"12 python"}}}},
                                                 {"h4", {}}};
  CHECK(join(cleanup_lines(hosts), "\n") ==
        "hvdrun: on h1 sh, sleep (2 processes) had to be ended; 1 file was removed from /dev/shm\n"
        "hvdrun: 0 processes left on 2 hosts: h1, h2");
  const std::vector<std::string> trouble = trouble_lines(hosts);
  REQUIRE(trouble.size() == 2);
  CHECK(trouble[0] == "hvdrun: on h3 processes of the job could not be ended: 12 python");
  CHECK(trouble[1].starts_with("hvdrun: could not check whether processes or files of the job remain on h4;"));
}

TEST_CASE("clean-up: memory on GPUs is told where it is known of all hosts, and as trouble where it is left") {
  std::map<std::string, HostCleanup> hosts{{"h1", {true, {}, 0}}, {"h2", {true, {}, 0}}};
  CHECK(join(cleanup_lines(hosts), "\n") == "hvdrun: 0 processes, 0 bytes of GPU memory left on 2 hosts: h1, h2");
  CHECK(trouble_lines(hosts).empty());
  hosts["h2"].gpu_bytes = -1;
  CHECK(join(cleanup_lines(hosts), "\n") == "hvdrun: 0 processes left on 2 hosts: h1, h2");
  hosts["h2"].gpu_bytes = 3ll << 30;
  CHECK(join(cleanup_lines(hosts), "\n") == "hvdrun: 0 processes left on 2 hosts: h1, h2");
  CHECK(join(trouble_lines(hosts), "\n") ==
        "hvdrun: on h2 ended ranks still have 3.0 GiB of GPU memory: look with nvidia-smi");
}
