#include "placement/machine_text.h"

#include <doctest/doctest.h>

namespace hvd::placement {
namespace {

TEST_CASE("exchange: a machine comes back as it was") {
  Machine machine;
  machine.cores = {{{0, 4}, 0}, {{1, 5}, 1}};
  machine.gpus = {{"0000:34:00.0", "GPU-1", "Tesla V100", 0, 1}, {"", "MIG-2", "", 1, -1}};
  machine.nics = {{"mlx5_0", 1, true}, {"eth0", -1, false}};
  machine.ways = {{"0000:34:00.0", "0000:36:00.0", "NV6"}};
  machine.driver = "580.65.06", machine.nccl = "2.30.7";
  for (const char* before : {"", "Welcome to beta\n"}) {
    const auto back = machine_from_text(before + machine_to_text(machine) + "bye\n");
    REQUIRE(back);
    CHECK(back->cores == machine.cores);
    CHECK(back->gpus[0].name == "Tesla V100");
    CHECK(back->gpus[1].pci == "");
    CHECK(back->gpus[1].node == -1);
    CHECK(back->nics[0].infiniband);
    CHECK(back->ways[0].name == "NV6");
    CHECK((back->driver == "580.65.06" && back->nccl == "2.30.7"));
    CHECK(machine_to_text(*back) == machine_to_text(machine));
  }
  CHECK(machine_to_text(*machine_from_text(machine_to_text({}))) == machine_to_text({}));
}

TEST_CASE("exchange: what is no machine is none") {
  const std::string whole = machine_to_text({{{{0}, 0}}, {}, {}});
  for (const std::string text : {"", "\n", "no", "hvd machine\n", "hvd machine ends\n"})
    CHECK_FALSE(machine_from_text(text));
  CHECK_FALSE(machine_from_text(whole.substr(0, whole.size() - 2)));
  for (const std::string line :
       {"core", "core 0", "core 0 x", "core 0 -1", "gpu 0 0 a b", "nic 0 0", "way a b", "driver", "disk 1"})
    CHECK_FALSE(machine_from_text("hvd machine\n" + line + "\nhvd machine ends\n"));
}

}  // namespace
}  // namespace hvd::placement
