// The hash of slices, their rotation, the vote, and results that differ between ranks.
#include "core/set/result_agreement.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "core/operation/name_entry.h"
#include "ops/kernels/cpu_kernels.h"
#include "ops/kernels/slice_hash.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;
using core::Disagreement;
using core::NameEntry;
using core::Operation;
using core::outvoted;
using core::ResultAgreement;
using core::slice_of;
using core::TensorSlice;
using ops::slice_hash;

namespace {

core::Config config_of(const char* mode, int steps) {
  core::Config config;
  config.set("HVD_AGREEMENT", mode);
  config.set("HVD_AGREEMENT_STEPS", steps);
  return config;
}

/// Ranks of one node, as objects of one thread.
struct Ranks {
  Ranks(int size, const core::Config& config) {
    memory::Geometry g;
    g.ranks = size;
    g.words = 2;
    g.chunk_bytes = g.eager_bytes = g.record_bytes = g.command_bytes = 4096;
    g.agreement = true;
    const std::vector<int> hosts(static_cast<std::size_t>(size), 0);
    for (int r = 0; r < size; ++r) {
      worlds.push_back(World::of(r, hosts, 0));
      nodes.push_back(std::make_unique<memory::Node>(g, r));
      if (r == 0) {
        memory.reset(std::aligned_alloc(4096, nodes[0]->total_bytes()), std::free);
        std::memset(memory.get(), 0, nodes[0]->total_bytes());
      }
      nodes.back()->attach(memory);
    }
    for (std::size_t r = 0; r < nodes.size(); ++r) all.push_back(ResultAgreement::make(worlds[r], config, *nodes[r]));
  }
  /// Rank @p r ends an allreduce with this result: [elements].
  void end(std::size_t r, std::uint32_t id, std::vector<float>& result, std::int64_t step = 0) {
    NameEntry e;
    Signature s;
    s.kind = static_cast<std::uint8_t>(Kind::allreduce);
    s.dtype = HVD_F32;
    s.ndim = 1;
    s.dims[0] = static_cast<std::int64_t>(result.size());
    e.describe(s, static_cast<int>(r), static_cast<int>(all.size()));
    e.id = id;
    e.name = "gradient." + std::to_string(id);
    Operation op;
    op.entry = &e;
    op.out = result.data();
    Operation* one = &op;
    all[r]->note({&one, 1}, step);
  }
  std::shared_ptr<void> memory;
  std::deque<World> worlds;
  std::vector<std::unique_ptr<memory::Node>> nodes;
  std::vector<std::unique_ptr<ResultAgreement>> all;
};

}  // namespace

TEST_CASE("agreement: every flipped bit changes the hash, at every length and alignment") {
  std::mt19937_64 random(1);
  std::vector<unsigned char> bytes(200);
  for (auto& b : bytes) b = static_cast<unsigned char>(random());
  std::set<std::uint64_t> hashes;
  for (std::size_t length = 0; length <= 100; ++length) {
    const std::uint64_t hash = slice_hash(bytes.data(), length);
    CHECK(hashes.insert(hash).second);
    std::vector<unsigned char> moved(length + 3);
    std::copy_n(bytes.begin(), length, moved.begin() + 3);
    CHECK(slice_hash(moved.data() + 3, length) == hash);
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
      CHECK(slice_hash(bytes.data(), length) != hash);
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
  }
  const std::vector<unsigned char> zeros(200);
  CHECK(slice_hash(zeros.data(), 31) != slice_hash(zeros.data(), 32));
}

TEST_CASE("agreement: every flipped bit changes the hash of whole KiB and their rest") {
  std::mt19937_64 random(2);
  std::vector<unsigned char> bytes(2100);
  for (auto& b : bytes) b = static_cast<unsigned char>(random());
  for (const std::size_t length : {1023ul, 1024ul, 1025ul, 2048ul, 2087ul}) {
    const std::uint64_t hash = slice_hash(bytes.data(), length);
    std::vector<unsigned char> moved(length + 3);
    std::copy_n(bytes.begin(), length, moved.begin() + 3);
    CHECK(slice_hash(moved.data() + 3, length) == hash);
    std::size_t missed = 0;
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
      missed += slice_hash(bytes.data(), length) == hash;
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
    CHECK(missed == 0);
  }
}

TEST_CASE("agreement: the lanes of a block are the same on every CPU") {
  using namespace ops::slice_hash_detail;
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> words(3 * 128);
  for (auto& w : words) w = random();
  std::uint64_t found[8], expected[8];
  for (std::size_t i = 0; i < 8; ++i) found[i] = expected[i] = i;
  ops::hash_blocks()(words.data(), 3, found);
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::size_t row = at / 8 % rows, lane = at % 8;
    const std::uint64_t mixed = words[at] ^ keys[row + lane];
    expected[lane] += (mixed & 0xffffffff) * (mixed >> 32);
    expected[lane ^ 1] += words[at];
    if (at % 128 == 127)
      for (std::size_t i = 0; i < 8; ++i)
        expected[i] = (expected[i] ^ expected[i] >> 47 ^ keys[rows + lanes + i]) * odd_32;
  }
  for (std::size_t i = 0; i < 8; ++i) CHECK(found[i] == expected[i]);
}

TEST_CASE("agreement: two words that are exchanged, or flipped alike, change the hash") {
  std::vector<std::uint64_t> words(256);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i;
  const std::uint64_t hash = slice_hash(words.data(), 2048);
  for (std::size_t i = 0; i < words.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      std::swap(words[i], words[j]);
      CHECK(slice_hash(words.data(), 2048) != hash);
      std::swap(words[i], words[j]);
      for (const int bit : {0, 31, 63}) {
        words[i] ^= 1ull << bit, words[j] ^= 1ull << bit;
        CHECK(slice_hash(words.data(), 2048) != hash);
        words[i] ^= 1ull << bit, words[j] ^= 1ull << bit;
      }
    }
}

TEST_CASE("agreement: slices rotate, and cover a tensor within the number of steps") {
  for (const std::size_t bytes : {1ul, 4ul, 1000ul, 1024ul, 1025ul, 70'001ul, 4'000'000ul, 67'108'864ul})
    for (const std::uint64_t steps : {1ul, 2ul, 7ul, 500ul}) {
      CAPTURE(bytes);
      CAPTURE(steps);
      std::size_t covered = 0;
      for (std::uint64_t look = 0; look < steps && covered < bytes; ++look) {
        const TensorSlice slice = slice_of(bytes, look, steps);
        CHECK(slice.begin == covered);
        CHECK(slice.end > slice.begin);
        covered = slice.end;
      }
      CHECK(covered == bytes);
      CHECK(slice_of(bytes, steps * 12345678, steps).end <= bytes);
    }
  CHECK(slice_of(0, 5, 500) == TensorSlice{});
  CHECK(slice_of(67'108'864, 0, 500).end == 134'272);
}

TEST_CASE("agreement: the majority names those that differ") {
  using Values = std::vector<std::uint64_t>;
  CHECK(outvoted(Values{5}).empty());
  CHECK(outvoted(Values{5, 5, 5}).empty());
  CHECK(outvoted(Values{5, 6}) == std::vector{0, 1});
  CHECK(outvoted(Values{5, 6, 5}) == std::vector{1});
  CHECK(outvoted(Values{9, 5, 5, 1, 5}) == std::vector{0, 3});
  CHECK(outvoted(Values{1, 1, 2, 2}) == std::vector{0, 1, 2, 3});
  CHECK(outvoted(Values{1, 2, 3}) == std::vector{0, 1, 2});
}

TEST_CASE("agreement: a flipped bit is reported when its slice is looked at, with tensor, step and rank") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300 / slower; ++round) {
    const std::size_t size = 2 + random() % 3, culprit = random() % size, elements = 1 + random() % 5000;
    const auto steps = static_cast<int>(1 + random() % 20);
    Ranks ranks(static_cast<int>(size), config_of("report", steps));
    std::vector<float> result(elements, 1.5f), flipped = result;
    const std::size_t bit = random() % (elements * 32);
    reinterpret_cast<unsigned char*>(flipped.data())[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    std::vector<float> other(7, 2);
    int found = 0;
    std::int64_t step = 0;
    for (; step < steps && found == 0; ++step) {
      for (std::size_t r = 0; r < size; ++r) {
        ranks.end(r, 3, other, step);
        ranks.end(r, 70, r == culprit ? flipped : result, step);
      }
      while (const std::optional<Disagreement> d = ranks.all[0]->compare()) {
        ++found;
        CHECK(d->outvoted == (size > 2));
        CHECK(d->rank == (size > 2 ? static_cast<int>(culprit) : 0));
        CHECK(d->text.find("'gradient.70' in step " + std::to_string(step) + ",") != std::string::npos);
        CHECK(d->text.find(size > 2 ? "is not on rank " + std::to_string(culprit) + " what"
                                    : "between rank 0 and rank 1,") != std::string::npos);
      }
    }
    CHECK(found == 1);
  }
}

TEST_CASE("agreement: a rank that is behind is compared later; one that is far behind is not") {
  Ranks ranks(2, config_of("report", 1));
  std::vector<float> same(4, 1), different(4, 2);
  for (int i = 0; i < 10; ++i) ranks.end(0, 0, same);
  CHECK(!ranks.all[0]->compare());
  for (int i = 0; i < 9; ++i) ranks.end(1, 0, same);
  CHECK(!ranks.all[0]->compare());
  ranks.end(1, 0, different);
  CHECK(ranks.all[0]->compare());
  CHECK(!ranks.all[0]->compare());
  for (std::size_t i = 0; i < memory::agreement_words + 5; ++i) ranks.end(1, 0, i < 5 ? different : same);
  for (std::size_t i = 0; i < memory::agreement_words + 5; ++i) ranks.end(0, 0, same);
  CHECK(!ranks.all[0]->compare());  // the words of the five were used again
  ranks.end(0, 0, same), ranks.end(1, 0, different);
  CHECK(ranks.all[0]->compare());
}

TEST_CASE("agreement: equal results of all operations are never reported, in any world") {
  for (const Split& s : worlds({{2, 0}, {3, 0}, {4, 0}, {4, 2}, {3, 1}}))
    run_world(
        s.size, s.per_node,
        [](Rank& rank) {
          std::vector<float> in(30'000), out(in.size());
          for (int step = 0; step < 40 / slower; ++step) {
            std::vector<hvd_request> many;
            std::size_t at = 0;
            for (const std::size_t elements : {1ul, 500ul, 3000ul, 20'000ul}) {
              for (std::size_t i = at; i < at + elements; ++i)
                in[i] = static_cast<float>(i) * 0.37f + static_cast<float>(rank.rank() * step);
              const std::string name = "t" + std::to_string(elements);
              many.push_back(Rank::request(step % 5 ? HVD_ALLREDUCE : HVD_BROADCAST, name.c_str(),
                                           {static_cast<std::int64_t>(elements)}, in.data() + at, out.data() + at,
                                           HVD_F32, step % 7 ? HVD_SUM : HVD_AVERAGE));
              thread_local std::deque<std::string> names;
              names.push_back(name), many.back().name = names.back().c_str();
              at += elements;
            }
            for (Operation* op : rank.submit_many(many)) EXPECT(rank.finish(*op) == HVD_OK);
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, nullptr, {100}, in.data(), out.data())) == HVD_OK);
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "adasum", {100}, in.data(), out.data(), HVD_F32,
                                          HVD_ADASUM)) == HVD_OK);
          }
        },
        config_of("stop", 3));
}

TEST_CASE("agreement: ranks that have joined stand in without a report") {
  for (const Split& s : worlds({{2, 0}, {3, 0}, {4, 2}, {3, 1}}))
    run_world(
        s.size, s.per_node,
        [](Rank& rank) {
          std::vector<float> in(3000, static_cast<float>(rank.rank())), out(in.size());
          for (int epoch = 0; epoch < 3; ++epoch) {
            for (int step = 0; step < 2 * rank.rank() + 2; ++step)
              for (const std::int64_t elements : {10, 3000})
                EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, elements == 10 ? "short" : "long", {elements}, in.data(),
                                              out.data())) == HVD_OK);
            EXPECT(rank.run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr)) == HVD_OK);
          }
        },
        config_of("stop", 2));
}

#if !defined(__SANITIZE_THREAD__)  // the race is the fault that this test plants
TEST_CASE("agreement: all ranks end with diverged where one rank's memory changes during an allreduce") {
  for (const Split& s : worlds({{2, 0}, {3, 0}, {4, 2}, {2, 1}, {3, 1}})) {
    std::map<int, std::string> texts;
    std::mutex mutex;
    run_world(
        s.size, s.per_node,
        [&](Rank& rank) {
          std::vector<float> tensor(2 << 20, 1);
          std::atomic<bool> stop{false};
          std::thread changes;
          if (rank.rank() == 1)
            changes = std::thread([&] {
              auto* first = reinterpret_cast<std::atomic<float>*>(tensor.data());
              while (!stop.load()) first->store(77, std::memory_order_relaxed);
            });
          int status = HVD_OK;
          std::string text;
          for (int step = 0; step < 1000 && status == HVD_OK; ++step)
            status = rank.try_run(
                Rank::request(HVD_ALLREDUCE, "weights", {2 << 20}, tensor.data(), tensor.data(), HVD_F32, HVD_MIN),
                &text, 60);
          stop = true;
          if (changes.joinable()) changes.join();
          EXPECT(status == HVD_DIVERGED);
          const std::lock_guard lock(mutex);
          texts[rank.rank()] = text;
        },
        config_of("stop", 1));
    for (const auto& [rank, text] : texts) {
      CHECK(text.find("the result of 'weights' in step ") != std::string::npos);
      CHECK(text.find(s.size == 3 ? "is not on rank 1 what it is on the others"
                                  : "differs between rank 0 and rank 1,") != std::string::npos);
    }
  }
}
#endif
