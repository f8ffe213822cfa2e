// Results on GPUs, whose hashes arrive late, are compared in the order in which they were queued.
#include <algorithm>
#include <random>

#include "agreeing_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

/// The hashes of a batch on a GPU that ends when the test says so.
struct LateHashes final : gpu::SliceHashes {
  explicit LateHashes(std::vector<std::uint64_t> all) : hashes(std::move(all)) {}
  bool arrived() const override { return there; }
  std::uint64_t of(std::size_t tensor) const override {
    CHECK(there);
    return hashes.at(tensor);
  }
  std::vector<std::uint64_t> hashes;
  bool there = false;
};

struct GpuRanks : AgreeingRanks {
  using AgreeingRanks::AgreeingRanks;
  /// Rank @p r queues a batch of allreduces of 10 numbers on its GPU.  @p ids, @p hashes: of the tensors.
  std::shared_ptr<LateHashes> queue(std::size_t r, const std::vector<std::uint32_t>& ids,
                                    const std::vector<std::uint64_t>& hashes, std::int64_t step = 0) {
    std::deque<core::NameEntry> entries(ids.size());
    std::deque<core::Operation> ops(ids.size());
    std::vector<core::Operation*> batch;
    std::vector<float> numbers(10);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      describe(entries[i], ops[i], r, ids[i], numbers);
      entries[i].signature.device = 0;
      all[r]->turns().next(ids[i], entries[i].bytes);
      batch.push_back(&ops[i]);
    }
    auto made = std::make_shared<LateHashes>(hashes);
    work[r].hashes = made;
    const std::vector<const core::Backend*> ran(ids.size(), &core::backend::nccl);
    all[r]->note(batch, ran, core::SharedResults(work[r]), step);
    return made;
  }
  std::optional<core::Disagreement> look() {
    for (const auto& a : all) a->take_arrived();
    return compare();
  }
};

bool is_about(const std::optional<core::Disagreement>& found, const std::string& text) {
  return found && found->text.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("agreement: a result on GPUs is compared once all have it, and later results wait for it") {
  GpuRanks ranks(3, agreement_config("report", 1));
  std::vector<float> same(4, 1), different(4, 2);
  std::vector<std::shared_ptr<LateHashes>> first, second;
  for (std::size_t r = 0; r < 3; ++r) {
    first.push_back(ranks.queue(r, {0, 1}, {77, r == 1 ? 9u : 8u}, 5));
    second.push_back(ranks.queue(r, {2}, {r == 2 ? 6u : 5u}, 6));
    ranks.end(r, 3, r == 0 ? different : same, 7);
  }
  CHECK(!ranks.look());
  for (const auto& s : second) s->there = true;  // GPUs may end in another order
  CHECK(!ranks.look());
  first[0]->there = first[2]->there = true;
  CHECK(!ranks.look());
  first[1]->there = true;
  CHECK(is_about(ranks.look(), "'gradient.1' in step 5, bytes 0-40 of 40, is not on rank 1 what it is on the others"));
  CHECK(is_about(ranks.look(), "'gradient.2' in step 6, bytes 0-40 of 40, is not on rank 2 what it is on the others"));
  CHECK(is_about(ranks.look(), "'gradient.3' in step 7, bytes 0-16 of 16, is not on rank 0 what it is on the others"));
  CHECK(!ranks.look());
}

TEST_CASE("agreement: ranks without a hash have no vote") {
  GpuRanks ranks(4, agreement_config("report", 1));
  auto all = [&ranks](const std::vector<std::uint64_t>& hashes) {
    for (std::size_t r = 0; r < 4; ++r) ranks.queue(r, {0}, {hashes[r]})->there = true;
    return ranks.look();
  };
  CHECK(!all({0, 0, 0, 0}));
  CHECK(!all({0, 7, 0, 0}));
  CHECK(!all({0, 7, 7, 7}));
  CHECK(is_about(all({0, 7, 6, 7}), "is not on rank 2 what it is on the others"));
  CHECK(is_about(all({5, 0, 6, 0}), "differs between rank 0 and rank 2, none of which has a majority"));
}

TEST_CASE("agreement: results after one that a GPU never ends are compared") {
  GpuRanks ranks(2, agreement_config("report", 1));
  std::vector<float> same(4, 1), different(4, 2);
  ranks.queue(0, {0}, {1}), ranks.queue(1, {0}, {2});
  for (std::size_t i = 0; i < memory::agreement_words; ++i)
    for (std::size_t r = 0; r < 2; ++r) ranks.end(r, 1, same), ranks.all[r]->take_arrived();
  ranks.end(0, 1, same, 9), ranks.end(1, 1, different, 9);
  CHECK(is_about(ranks.look(), "'gradient.1' in step 9"));
  CHECK(!ranks.look());
}

TEST_CASE("agreement: GPUs that end in any order find each difference once, and no other") {
  std::mt19937 random(3);
  for (int round = 0; round < 200 / slower; ++round) {
    const std::size_t size = 2 + random() % 3;
    GpuRanks ranks(static_cast<int>(size), agreement_config("report", 1));
    std::vector<std::vector<std::shared_ptr<LateHashes>>> under_way(size);
    std::vector<float> same(4, 1), different(4, 2);
    std::vector<std::int64_t> planted, found;
    auto look = [&] {
      while (const auto d = ranks.look()) found.push_back(d->step);
    };
    for (std::int64_t step = 0; step < 60; ++step) {
      const bool on_gpu = random() % 3 != 0, wrong = random() % 4 == 0;
      const std::size_t culprit = random() % size;
      if (wrong) planted.push_back(step);
      for (std::size_t r = 0; r < size; ++r) {
        if (!on_gpu)
          ranks.end(r, 0, wrong && r == culprit ? different : same, step);
        else
          under_way[r].push_back(ranks.queue(r, {1, 2}, {3, wrong && r == culprit ? 5u : 4u}, step));
        std::shuffle(under_way[r].begin(), under_way[r].end(), random);
        while (!under_way[r].empty() && random() % 3 != 0) under_way[r].back()->there = true, under_way[r].pop_back();
      }
      look();
    }
    for (const auto& some : under_way)
      for (const auto& one : some) one->there = true;
    look();
    CHECK(found == planted);
  }
}
