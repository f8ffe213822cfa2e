/// Broadcasts between nodes: the choices of the tree, and complete results on all ranks, from any root, fused or not.
#include <set>

#include "ops/movement/spread_tree.h"
#include "ops/pieces.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

TEST_CASE("broadcast: every node has one parent, and is reached from the root") {
  for (const int nodes : {1, 2, 3, 4, 7, 16, 61})
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{1} << 20, std::size_t{1} << 30})
      for (const int root : {0, nodes / 2, nodes - 1}) {
        const ops::SpreadTree tree(nodes, root, bytes);
        std::set<int> reached{root};
        std::vector<int> front{root};
        while (!front.empty()) {
          const int node = front.back();
          front.pop_back();
          for (int i = 0; i < tree.children(node); ++i) {
            const int child = tree.child(node, i);
            CHECK(tree.parent(child) == node);
            CHECK(reached.insert(child).second);
            front.push_back(child);
          }
        }
        CHECK(static_cast<int>(reached.size()) == nodes);
      }
}

TEST_CASE("pieces: the cut depends on the lengths only, also for pieces without an address") {
  std::vector<unsigned char> memory(300'000);
  ops::Pieces here, nowhere;
  for (const std::size_t bytes : {10u, 20u, 250'000u, 30u, 40u}) {
    here.add(memory.data(), bytes);
    nowhere.add(nullptr, bytes);
  }
  const auto a = here.segments(100'000), b = nowhere.segments(100'000);
  REQUIRE((a.size() == 5 && b.size() == 5));  // 30, 3 of the large piece, 70
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK((a[i].begin == b[i].begin && a[i].end == b[i].end));
    CHECK((a[i].direct == (i % 4 ? memory.data() + (i - 1) * 100'000 : nullptr) && b[i].direct == nullptr));
  }
}

TEST_CASE("broadcast: much data goes along a chain, little goes wide") {
  CHECK(ops::SpreadTree(64, 0, std::size_t{1} << 30).arity() == 1);
  CHECK(ops::SpreadTree(64, 0, 4).arity() > 2);
  CHECK(ops::SpreadTree(2, 0, 4).arity() == 1);
}

TEST_CASE("broadcast: three roots fused with a gather, small and large, over nodes") {
  for (const auto& world : worlds({{3, 0}, {3, 1}, {7, 1}, {8, 2}, {7, 2}}))
    for (const std::int64_t delay_ns :
         slower > 1 ? std::vector<std::int64_t>{200'000} : std::vector<std::int64_t>{0, 200'000})
      run_world(
          world.size, world.per_node,
          [&](Rank& rank) {
            const std::vector<std::size_t> lengths{1, 3, 70'000, 600'000};
            std::vector<std::vector<float>> in, out;
            std::vector<hvd_request> requests;
            std::vector<std::string> names;
            for (std::size_t i = 0; i < 12; ++i) {
              const std::size_t n = lengths[i % lengths.size()];
              const int root = static_cast<int>(i * 5) % world.size;
              in.emplace_back(n, static_cast<float>(rank.rank() == root ? 100 * i + 1 : 0));
              out.emplace_back(n, -1.0f);
              names.push_back("b" + std::to_string(i));
            }
            for (std::size_t i = 0; i < 12; ++i) {
              requests.push_back(Rank::request(HVD_BROADCAST, names[i].c_str(),
                                               {static_cast<std::int64_t>(in[i].size())}, in[i].data(), out[i].data()));
              requests.back().root = static_cast<int>(i * 5) % world.size;
            }
            const float mine = static_cast<float>(rank.rank());
            requests.push_back(Rank::request(HVD_ALLGATHER, "g", {1}, &mine, nullptr));
            for (int round = 0; round < (slower > 1 ? 2 : 3); ++round) {
              const auto operations = rank.submit_group(requests);
              for (core::Operation* op : operations) EXPECT(rank.finish(*op) == HVD_OK);
              for (std::size_t i = 0; i < 12; ++i) {
                EXPECT(out[i] == std::vector<float>(in[i].size(), static_cast<float>(100 * i + 1)));
                std::fill(out[i].begin(), out[i].end(), -1.0f);
              }
            }
          },
          {}, delay_ns);
}
