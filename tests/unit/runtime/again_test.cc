// Requests that are recognised without being checked: what looks the same, and what only nearly does.
#include <array>

#include "world_of_threads.h"

namespace hvd::testing {
namespace {

bool again(Rank& rank, const std::vector<hvd_request>& qs, bool group, std::vector<core::Operation*>& ops) {
  ops.assign(qs.size(), nullptr);
  return rank.engine().submit_again(rank.engine().set(), qs, group, ops.data());
}

void finish(Rank& rank, const std::vector<core::Operation*>& ops) {
  for (core::Operation* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
}

}  // namespace

TEST_CASE("again: a list is known when it came before, and not when anything in it differs") {
  run_world(2, 0, [](Rank& rank) {
    std::array<float, 8> x{};
    const char* names[] = {"a", "b", "c"};
    auto list = [&](std::int64_t length) {
      std::vector<hvd_request> qs;
      for (int i = 0; i < 3; ++i)
        qs.push_back(Rank::request(HVD_ALLREDUCE, names[i], {length}, &x[static_cast<std::size_t>(2 * i)],
                                   &x[static_cast<std::size_t>(2 * i)]));
      return qs;
    };
    std::vector<core::Operation*> ops;
    EXPECT(!again(rank, list(1), false, ops));
    for (const hvd_request& q : list(1)) EXPECT(rank.run(q) == HVD_OK);
    for (int round = 0; round < 50; ++round) {
      x = {1, 0, 2, 0, 3, 0};
      EXPECT(again(rank, list(1), false, ops));
      finish(rank, ops);
      EXPECT(x[0] == 2 && x[2] == 4 && x[4] == 6);
    }
    auto refused = [&](auto&& change, bool group = false) {
      std::vector<hvd_request> qs = list(1);
      change(qs);
      EXPECT(!again(rank, qs, group, ops));
    };
    const std::int64_t no_shape[] = {1, 1}, splits[] = {1, 0};
    refused([](auto& qs) { qs[2].dtype = HVD_I32; });
    refused([](auto& qs) { qs[1].reduce = HVD_MAX; });
    refused([](auto& qs) { qs[1].kind = HVD_BROADCAST; });
    refused([](auto& qs) { qs[1].prescale = 2; });
    refused([](auto& qs) { qs[0].postscale = 1; });
    refused([](auto& qs) { qs[0].set = 1; });
    refused([](auto& qs) { qs[0].device = 0; });
    refused([](auto& qs) { qs[2].in = nullptr; });
    refused([](auto& qs) { qs[2].name = nullptr; });
    refused([](auto& qs) { qs[2].name = "never seen"; });
    refused([](auto& qs) { qs[2].name = qs[0].name; });
    refused([](auto& qs) { qs[2].struct_size = 8; });
    refused([](auto& qs) { qs[2].shape = nullptr; });
    refused([&](auto& qs) { qs[2].splits = splits; });
    refused([&](auto& qs) { qs[1].ndim = 2, qs[1].shape = no_shape; });
    refused([](auto&) {}, true);
    EXPECT(!again(rank, list(2), false, ops));
    // Nothing of that was taken, and in another order they are known all the same.
    std::vector<hvd_request> turned = list(1);
    std::swap(turned[0], turned[2]);
    EXPECT(again(rank, turned, false, ops));
    finish(rank, ops);
  });
}

TEST_CASE("again: a group is the same names in the same order") {
  run_world(2, 0, [](Rank& rank) {
    std::array<float, 3> x{1, 2, 3};
    const char* names[] = {"g0", "g1", "g2"};
    std::vector<hvd_request> qs;
    for (std::size_t i = 0; i < 3; ++i) qs.push_back(Rank::request(HVD_ALLREDUCE, names[i], {1}, &x[i], &x[i]));
    std::vector<core::Operation*> ops;
    EXPECT(!again(rank, qs, true, ops));
    finish(rank, rank.submit_group(qs));
    EXPECT(again(rank, qs, true, ops));
    finish(rank, ops);
    EXPECT(!again(rank, qs, false, ops));
    std::vector<hvd_request> other = {qs[1], qs[0], qs[2]};
    EXPECT(!again(rank, other, true, ops));
    other = {qs[0], qs[1]};
    EXPECT(!again(rank, other, true, ops));
    finish(rank, rank.submit_group(other));
    EXPECT(!again(rank, qs, true, ops));  // two of them are of another group now
    finish(rank, rank.submit_group(qs));
    EXPECT(again(rank, qs, true, ops));
    finish(rank, ops);
  });
}

}  // namespace hvd::testing
