#include "launcher/start/shared_step.h"

#include <doctest/doctest.h>

#include "base/process/capture.h"

using namespace hvd::launcher;

TEST_CASE("one step for all hosts: its command comes from the words for one host, or not at all") {
  const std::vector<std::string> one{"srun", "--nodes=1", "--ntasks=1", "--nodelist={host}", "--input=0", "--jobid=7"};
  CHECK(shared_step_command(one, {"a", "b"}) == std::vector<std::string>{"srun", "--nodes=2", "--ntasks=2",
                                                                         "--nodelist=a,b", "--input=all", "--jobid=7",
                                                                         "--ntasks-per-node=1", "--label", "/bin/sh"});
  CHECK(shared_step_command({"ssh", "{host}"}, {"a", "b"}).empty());
  CHECK(shared_step_command({"srun", "--nodelist={host}"}, {"a", "b"}).empty());
  CHECK(shared_step_command(one, {std::string(200'000, 'a'), "b"}).empty());
}

TEST_CASE("one step for all hosts: each task finds its ranks by its node, and tells its end") {
  const std::string script = shared_step_script({{"a", "0,1"}, {"b", "2"}}, "echo ranks $hvd_ranks\nexit 3\n");
  const auto run = [&](const std::string& node) {
    return hvd::capture({"/bin/sh", "-c", "SLURMD_NODENAME=" + node + " exec /bin/sh"}, script,
                        std::chrono::seconds(20));
  };
  CHECK(run("a").out == "hvdrun-host a\nranks 0,1\nhvdrun-ended 3\n");
  CHECK(run("c").code == 4);
}

TEST_CASE("one step for all hosts: lines and ends by host, in any pieces") {
  SharedStepOutput output;
  for (const char* piece : {"0: hvdrun-host b\n 1: hvdrun", "-host a\nsrun: error: x\n 1: no Python\n0: he", "llo\n",
                            " 1: hvdrun-ended 4\n2: unknown\n0: hvdrun-ended x\n"})
    output.add(piece);
  CHECK(output.logs() == std::map<std::string, std::string>{{"a", "no Python\n"}, {"b", "hello\n"}});
  CHECK(output.ended() == std::map<std::string, int>{{"a", 4 << 8}, {"b", 255 << 8}});
}
