#include "placement/rank_resources.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::placement;

namespace {

/// Nodes of @p cores_each cores with two threads each, numbered as Linux does: second threads come last.
Machine machine(int nodes, int cores_each, const std::vector<int>& gpu_nodes) {
  Machine m;
  const int total = nodes * cores_each;
  for (int c = 0; c < total; ++c) m.cores.push_back({{c, c + total}, c / cores_each});
  for (std::size_t g = 0; g < gpu_nodes.size(); ++g)
    m.gpus.push_back(
        {"0000:0" + std::to_string(g) + ":00.0", "GPU-" + std::to_string(g), "", static_cast<int>(g), gpu_nodes[g]});
  return m;
}

/// "0-1,8-9 t2 g0 n0" for each rank.
std::string text(const std::vector<RankResources>& shares) {
  std::string out;
  for (const RankResources& s : shares)
    out += (s.cpus.empty() ? "any" : ranges(s.cpus)) + " t" + std::to_string(s.threads) +
           (s.gpu ? " g" + std::to_string(s.gpu->index) : "") + " n" + std::to_string(s.node) +
           (s.nic.empty() ? "" : " " + s.nic) + "; ";
  return out;
}

}  // namespace

TEST_CASE("share: without GPUs, equal parts of all cores, whole cores, neighbours first") {
  const Machine m = machine(2, 2, {});
  CHECK(text(divide_machine(m, 1, GpuMode::all, false)) == "0-7 t4 n-1; ");
  CHECK(text(divide_machine(m, 2, GpuMode::all, false)) == "0-1,4-5 t2 n0; 2-3,6-7 t2 n1; ");
  CHECK(text(divide_machine(m, 3, GpuMode::all, false)) == "0,4 t1 n0; 1,5 t1 n0; 2-3,6-7 t2 n1; ");
  CHECK(text(divide_machine(m, 5, GpuMode::all, false)) ==
        "any t1 n-1; any t1 n-1; any t1 n-1; any t1 n-1; any t1 n-1; ");
  CHECK(text(divide_machine({}, 2, GpuMode::all, false)) == "any t1 n-1; any t1 n-1; ");
}

TEST_CASE("share: near the rank's own GPU") {
  CHECK(text(divide_machine(machine(2, 4, {0, 0, 1, 1}), 4, GpuMode::all, false)) ==
        "0-1,8-9 t2 g0 n0; 2-3,10-11 t2 g1 n0; 4-5,12-13 t2 g2 n1; 6-7,14-15 t2 g3 n1; ");
  // Fewer ranks than GPUs: all cores of a node are for the ranks on it.
  CHECK(text(divide_machine(machine(2, 4, {0, 0, 1, 1}), 2, GpuMode::own, false)) ==
        "0-1,8-9 t2 g0 n0; 2-3,10-11 t2 g1 n0; ");
  // Uneven: a node's cores are divided among its own ranks.
  CHECK(text(divide_machine(machine(2, 4, {1, 0, 1}), 3, GpuMode::all, false)) ==
        "4-5,12-13 t2 g0 n1; 0-3,8-11 t4 g1 n0; 6-7,14-15 t2 g2 n1; ");
  CHECK(text(divide_machine(machine(2, 4, {1, 1}), 2, GpuMode::none, false)) == "0-3,8-11 t4 n0; 4-7,12-15 t4 n1; ");
}

TEST_CASE("share: memory of the node whose cores a rank has") {
  const auto nodes = [](const Machine& m, int ranks) {
    std::string out;
    for (const RankResources& s : divide_machine(m, ranks, GpuMode::all, true))
      out += std::to_string(s.memory_node) + " ";
    return out;
  };
  CHECK(nodes(machine(2, 2, {}), 2) == "0 1 ");
  CHECK(nodes(machine(2, 2, {}), 3) == "0 0 1 ");
  CHECK(nodes(machine(2, 2, {}), 1) == "-1 ");        // cores of both nodes
  CHECK(nodes(machine(2, 1, {}), 3) == "-1 -1 -1 ");  // not bound
  CHECK(nodes(machine(1, 4, {}), 2) == "-1 -1 ");     // there is one node
  CHECK(nodes(machine(2, 4, {1, 0, 1}), 3) == "1 0 1 ");
  CHECK(nodes(machine(2, 2, {1, 1, 1}), 3) == "1 1 1 ");  // they share the cores of their GPUs' node
  CHECK(nodes({}, 2) == "-1 -1 ");
}

TEST_CASE("share: a GPU whose node is unknown, or has no core that may be used") {
  CHECK(text(divide_machine(machine(2, 2, {-1, -1}), 2, GpuMode::all, false)) ==
        "0-1,4-5 t2 g0 n0; 2-3,6-7 t2 g1 n1; ");
  CHECK(text(divide_machine(machine(2, 2, {0, -1}), 2, GpuMode::all, false)) == "0-1,4-5 t2 g0 n0; 2-3,6-7 t2 g1 n1; ");
  Machine m = machine(2, 2, {0, 1});
  m.cores.resize(2);  // a cpuset without node 1
  CHECK(text(divide_machine(m, 2, GpuMode::all, false)) == "0-1,4-5 t2 g0 n0; 0-1,4-5 t2 g1 n0; ");
}

TEST_CASE("share: more ranks than GPUs, and than cores of a node") {
  const Machine m = machine(2, 2, {0, 1});
  try {
    divide_machine(m, 3, GpuMode::all, false);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) == "3 ranks on a host with 2 GPUs");
    CHECK(e.hint == "start fewer there, or give --share-gpus, or --gpus none for work on the CPU");
  }
  CHECK(text(divide_machine(m, 3, GpuMode::all, true)) == "0,4 t1 g0 n0; 2-3,6-7 t2 g1 n1; 1,5 t1 g0 n0; ");
  CHECK(text(divide_machine(machine(2, 1, {0, 0, 1}), 3, GpuMode::all, false)) ==
        "0,2 t1 g0 n0; 0,2 t1 g1 n0; 1,3 t1 g2 n1; ");
  CHECK(text(divide_machine(m, 3, GpuMode::none, false)).find(" g") == std::string::npos);
}

TEST_CASE("share: the nearest network interface, InfiniBand first, in turns") {
  Machine m = machine(2, 2, {0, 0, 1, 1});
  m.nics = {{"mlx5_0", 0, true}, {"mlx5_1", 0, true}, {"eth0", 1, false}};
  const std::vector<RankResources> shares = divide_machine(m, 4, GpuMode::all, false);
  CHECK(shares[0].nic + shares[1].nic + shares[2].nic + shares[3].nic == "mlx5_0mlx5_1mlx5_0mlx5_1");
}

TEST_CASE("share: what a rank sees") {
  const std::vector<RankResources> shares = divide_machine(machine(1, 2, {0, 0}), 2, GpuMode::own, false);
  CHECK(visible_devices(shares[1], GpuMode::own) == "GPU-1");
  CHECK(visible_devices(shares[1], GpuMode::none) == "");
  CHECK_FALSE(visible_devices(shares[1], GpuMode::all));
  CHECK_FALSE(visible_devices(RankResources{}, GpuMode::own));
  RankResources anonymous = shares[1];
  anonymous.gpu->uuid.clear();
  CHECK(visible_devices(anonymous, GpuMode::own) == "1");
  for (const char* word : {"all", "own", "none"}) CHECK(name_of(*gpu_mode(word)) == std::string(word));
  CHECK_FALSE(gpu_mode("some"));
}
