/// Gathers between many nodes: the rounds bring all parts to all nodes; the choice of rounds; the results.
#include <numeric>

#include "ops/movement/gather_plan.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

TEST_CASE("gather: in rounds every node gets each part once, from one that has it") {
  for (const int nodes : {1, 2, 3, 4, 7, 8, 24, 61, 100}) {
    const ops::GatherPlan plan(nodes);
    std::vector<std::vector<int>> has(static_cast<std::size_t>(nodes));  // in the order of arrival
    for (int n = 0; n < nodes; ++n) has[static_cast<std::size_t>(n)] = {n};
    for (int round = 0; round < plan.rounds(); ++round) {
      const auto before = has;
      for (int n = 0; n < nodes; ++n) {
        const int from = plan.from(n, round);
        CHECK(plan.to(from, round) == n);
        const auto& theirs = before[static_cast<std::size_t>(from)];
        REQUIRE(static_cast<int>(theirs.size()) >= plan.count(round));
        auto& mine = has[static_cast<std::size_t>(n)];
        mine.insert(mine.end(), theirs.begin(), theirs.begin() + plan.count(round));
      }
    }
    for (int n = 0; n < nodes; ++n) {
      REQUIRE(static_cast<int>(has[static_cast<std::size_t>(n)].size()) == nodes);
      for (int k = 0; k < nodes; ++k)
        CHECK(has[static_cast<std::size_t>(n)][static_cast<std::size_t>(k)] == plan.before(n, k));
    }
  }
}

TEST_CASE("gather: rounds are for little data of many nodes") {
  const auto in_rounds = [](int nodes, std::size_t bytes) { return ops::GatherPlan::is_faster(nodes, bytes); };
  CHECK(!in_rounds(2, 8));
  CHECK(!in_rounds(16, 128));
  CHECK(in_rounds(32, 256));
  CHECK(in_rounds(1024, 1 << 20));
  for (const int nodes : {32, 1024}) CHECK(!in_rounds(nodes, std::size_t{1} << 30));
}

namespace {

/// Returns its result. Throws if it has failed.
std::vector<float> finished(Rank& rank, core::Operation& op) {
  EXPECT(rank.engine().wait(op, 120) && op.status == HVD_OK);
  std::size_t count = 1;
  for (const std::int64_t n : op.result_shape) count *= static_cast<std::size_t>(n);
  const auto* const at = static_cast<const float*>(op.result);
  std::vector<float> result(at, at + count);
  rank.engine().operations().release(op);
  return result;
}

/// Two gathers of unequal lengths, and perhaps more in the same batch. @p most: floats that most ranks give to the
/// second; a few ranks give six times as many.
void gathers(Rank& rank, int most, bool with_broadcast, bool with_alltoall) {
  const auto rows_of = [](int r) { return static_cast<std::int64_t>(r % 5); };  // some ranks give nothing
  const auto floats_of = [&](int r) { return r % 16 == 0 ? 6 * most : r % 3 * most / 2; };
  const auto size = static_cast<std::size_t>(rank.size());
  const int me = rank.rank();
  std::vector<float> small(static_cast<std::size_t>(rows_of(me)) * 3), large(static_cast<std::size_t>(floats_of(me)));
  std::iota(small.begin(), small.end(), static_cast<float>(1000 * me));
  std::iota(large.begin(), large.end(), static_cast<float>(me));
  std::vector<hvd_request> requests;
  requests.push_back(Rank::request(HVD_ALLGATHER, "small", {rows_of(me), 3}, small.data(), nullptr));
  requests.push_back(Rank::request(HVD_ALLGATHER, "large", {floats_of(me)}, large.data(), nullptr));
  float given = static_cast<float>(me), got = -1;
  if (with_broadcast) {
    requests.push_back(Rank::request(HVD_BROADCAST, "given", {1}, &given, &got));
    requests.back().root = 3;
  }
  std::vector<std::int64_t> splits(size, 1);
  std::vector<float> each(size, static_cast<float>(me));
  if (with_alltoall) {
    requests.push_back(Rank::request(HVD_ALLTOALL, "each", {static_cast<std::int64_t>(size)}, each.data(), nullptr));
    requests.back().splits = splits.data();
    requests.back().num_splits = static_cast<int>(size);
  }
  for (int round = 0; round < 2; ++round) {
    const auto ops = rank.submit_group(requests);
    std::vector<float> wanted[2];
    for (int r = 0; r < rank.size(); ++r) {
      for (int i = 0; i < rows_of(r) * 3; ++i) wanted[0].push_back(static_cast<float>(1000 * r + i));
      for (int i = 0; i < floats_of(r); ++i) wanted[1].push_back(static_cast<float>(r + i));
    }
    for (std::size_t i = 0; i < 2; ++i) EXPECT(finished(rank, *ops[i]) == wanted[i]);
    if (with_broadcast) {
      EXPECT(rank.finish(*ops[2]) == HVD_OK);
      EXPECT(got == 3);
    }
    if (with_alltoall) {
      std::vector<float> from(size);
      std::iota(from.begin(), from.end(), 0.0f);
      EXPECT(finished(rank, *ops.back()) == from);
    }
  }
}

}  // namespace

TEST_CASE("gather: over many nodes in rounds, whatever else is in the batch") {
  const auto run = [](const Split& world, int most, bool broadcast, bool alltoall) {
    run_world(
        world.size, world.per_node, [&](Rank& rank) { gathers(rank, most, broadcast, alltoall); }, {},
        slower == 1 && world.per_node == 1 ? 200'000 : 0);
  };
  run({27, 1}, 4, false, false);
  if (slower > 1) return;             // a world of this size takes a sanitizer a minute
  run({27, 1}, 24'000, true, false);  // the lengths in rounds, the data directly
  run({27, 1}, 4, true, true);
  run({58, 2}, 4, true, false);
  run({64, 1}, 1'400, false, false);  // several messages in a round: each goes on before the round is complete
}
