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

#include "agreeing_ranks.h"
#include "core/backends/eager_backend.h"
#include "ops/kernels/cpu_kernels.h"
#include "ops/kernels/slice_hash.h"
#include "watched_transport.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;
using core::Backend;
using core::Disagreement;
using core::NameEntry;
using core::Operation;
using core::outvoted;
using core::ResultAgreement;
using core::SharedResults;
using core::slice_of;
using core::Workspace;
using ops::slice_hash;

namespace hvd::core::backend {
extern const Backend movement, shm_direct, shm_rings;
}

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
    AgreeingRanks ranks(static_cast<int>(size), agreement_config("report", steps));
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
      while (const std::optional<Disagreement> d = ranks.compare()) {
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

namespace {

void flip(void* at) { *static_cast<unsigned char*>(at) ^= 4; }

/// An allreduce or a broadcast of 10 numbers from rank 0, on all ranks of one node, with their flips.
struct Planted {
  explicit Planted(std::size_t size, Kind kind = Kind::allreduce)
      : ranks(static_cast<int>(size), agreement_config("report", 1)),
        entries(size),
        ops(size),
        values(size),
        kind(kind) {
    for (std::size_t r = 0; r < size; ++r) {
      values[r].assign(10, static_cast<float>(r) + 1);
      ranks.describe(entries[r], ops[r], r, 0, values[r], kind);
      std::memcpy(slot(r), values[r].data(), 40);
    }
  }
  void* slot(std::size_t r) { return ranks.work[r].slots.at(static_cast<int>(r), 0, 0); }
  void reads_slots(std::size_t r) { core::run_eager(ranks.work[r], ops[r]); }
  void through_rings() {
    const Backend* const chosen = &core::backend::shm_rings;
    std::vector<Operation*> one;
    for (std::size_t r = 0; r < ops.size(); ++r)
      one.assign(1, &ops[r]), ranks.work[r].reduction.begin(one, {&chosen, 1});
    for (std::size_t done = 0; done < ops.size();) {
      done = 0;
      for (Workspace& w : ranks.work) w.reduction.step(), done += w.reduction.done();
    }
  }
  void note(std::size_t r, const Backend* ran = nullptr) {
    Operation* const one = &ops[r];
    ranks.all[r]->note({&one, 1}, {&ran, ran ? 1u : 0u}, SharedResults(ranks.work[r]), 7);
  }
  /// The stage that the report names.
  std::string stage() {
    const std::optional<Disagreement> found = ranks.compare();
    if (!found) return "no difference";
    const std::size_t at = found->text.find("; stage: ");
    return at == std::string::npos ? "" : found->text.substr(at + 9);
  }
  AgreeingRanks ranks;
  std::vector<NameEntry> entries;
  std::vector<Operation> ops;
  std::vector<std::vector<float>> values;
  Kind kind;
};

}  // namespace

TEST_CASE("agreement: stage of ranks that read and add by themselves") {
  for (const std::size_t size : {2u, 3u, 4u}) {
    Planted wrong(size);
    for (std::size_t r = 0; r < size; ++r) {
      wrong.reads_slots(r);
      if (r == 1) flip(&wrong.values[r][5]);
      wrong.note(r);
    }
    CHECK(wrong.stage() == (size == 2 ? "read or sum (the inputs in shared memory give what rank 0 has)"
                                      : "read or sum (the inputs in shared memory give what the others have)"));
    Planted changed(size);
    for (std::size_t r = 0; r < size; ++r) {
      if (r + 1 == size) flip(static_cast<unsigned char*>(changed.slot(0)) + 22);
      changed.reads_slots(r), changed.note(r);
    }
    const std::string last = std::to_string(size - 1);
    CHECK(changed.stage() == (size == 2 ? "read or sum" : "changed in shared memory") +
                                 (" (the inputs in shared memory give what rank " + last + " has)"));
    Planted gone(size);  // the slots have other inputs since
    for (std::size_t r = 0; r < size; ++r) {
      gone.reads_slots(r);
      if (r == 1) flip(&gone.values[r][5]);
      gone.note(r);
    }
    flip(gone.slot(1));
    CHECK(gone.stage() == "read or sum");
    Planted equal(size);
    for (std::size_t r = 0; r < size; ++r) equal.reads_slots(r), equal.note(r);
    CHECK(equal.stage() == "no difference");
  }
}

TEST_CASE("agreement: stage of ranks that copy one sum") {
  for (const std::size_t size : {2u, 3u}) {
    const std::string others = size == 2 ? "rank 0 has" : "the others have";
    Planted wrong(size);
    wrong.through_rings();
    flip(&wrong.values[1][5]);
    for (std::size_t r = 0; r < size; ++r) wrong.note(r, &core::backend::shm_rings);
    CHECK(wrong.stage() == "copy out (shared memory has what " + others + ")");
    Planted changed(size);
    changed.through_rings();
    flip(&changed.values[1][5]), flip(changed.ranks.nodes[0]->result(0) + 20);
    for (std::size_t r = 0; r < size; ++r) changed.note(r, &core::backend::shm_rings);
    CHECK(changed.stage() ==
          (size == 2 ? "copy out" : "changed in shared memory") + std::string(" (shared memory has what rank 1 has)"));
    Planted gone(size);
    gone.through_rings();
    flip(&gone.values[1][5]);
    for (std::size_t r = 0; r < size; ++r) gone.note(r, &core::backend::shm_rings);
    gone.through_rings();
    CHECK(gone.stage() == "copy out");
    Planted direct(size);
    direct.through_rings();
    flip(&direct.values[1][5]);
    for (std::size_t r = 0; r < size; ++r) direct.note(r, &core::backend::shm_direct);
    CHECK(direct.stage() == "copy out");
    Planted sent(size, Kind::broadcast);
    for (std::size_t r = 0; r < size; ++r) {
      sent.reads_slots(r);
      if (r == 1) flip(&sent.values[r][5]);
      sent.note(r);
    }
    CHECK(sent.stage() == "copy out (shared memory has what " + others + ")");
    Planted moved(size, Kind::broadcast);
    for (std::size_t r = 0; r < size; ++r) {
      moved.reads_slots(r);
      if (r == 1) flip(&moved.values[r][5]);
      moved.note(r, &core::backend::movement);
    }
    CHECK(moved.stage() == "copy out");
    Planted unknown(size);
    unknown.through_rings();
    flip(&unknown.values[1][5]);
    for (std::size_t r = 0; r < size; ++r) unknown.note(r, &core::backend::adasum);
    CHECK(unknown.stage() == "");
  }
}

TEST_CASE("agreement: the bytes of a result in shared memory, for every slice of large tensors") {
  Planted planted(3);
  for (const std::size_t elements : {40'000u, 3000u, 1u}) {  // chunks of 4096 bytes: only the last two are kept
    for (std::size_t r = 0; r < 3; ++r) {
      planted.values[r].assign(elements, 0.25f * static_cast<float>(r + 1));
      for (std::size_t i = 0; i < elements; ++i) planted.values[r][i] += static_cast<float>(i);
      planted.ranks.describe(planted.entries[r], planted.ops[r], r, 0, planted.values[r]);
    }
    planted.through_rings();
    const SharedResults shared(planted.ranks.work[0]);
    const core::ResultPlace place = shared.place_of(planted.ops[0], &core::backend::shm_rings);
    std::size_t found = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(planted.values[0].data());
    for (std::size_t at = 0; at < 4 * elements; at += 64) {
      const std::size_t end = std::min(4 * elements, at + 1024);
      const auto hash = shared.hash(place, at, end);
      if (!hash) continue;
      ++found;
      CHECK(*hash == slice_hash(bytes + at, end - at));
    }
    const std::size_t chunks = (4 * elements + 4095) / 4096, gone = chunks > 2 ? (chunks - 2) * 4096 : 0;
    CHECK(found == (4 * elements - gone + 63) / 64);
  }
}

namespace {

/// Flips a bit of the first message with a tag that arrives once armed.
class FlippingTransport final : public ForwardingTransport {
 public:
  FlippingTransport(std::unique_ptr<transport::Transport> inner, const std::atomic<bool>& armed, transport::Tag tag)
      : ForwardingTransport(std::move(inner)), armed_(armed), tag_(tag) {}
  transport::Ticket irecv(int from, transport::Tag tag, void* data, std::size_t bytes) override {
    const transport::Ticket ticket = ForwardingTransport::irecv(from, tag, data, bytes);
    if (armed_ && tag == tag_ && !victim_ && ticket != 0) victim_ = static_cast<unsigned char*>(data), ticket_ = ticket;
    return ticket;
  }
  bool test(transport::Ticket ticket) override {
    const bool done = ForwardingTransport::test(ticket);
    if (done && ticket_ != 0 && ticket == ticket_) flip(victim_ + 8), ticket_ = 0;
    return done;
  }

 private:
  const std::atomic<bool>& armed_;
  const transport::Tag tag_;
  unsigned char* victim_ = nullptr;
  transport::Ticket ticket_ = 0;  ///< of the message that is to be flipped; 0: none
};

/// The error of all ranks after a flip in a message to the last rank.
std::string flipped_on_the_way(int size, int per_node, std::int64_t elements, transport::Tag tag) {
  core::Config config = agreement_config("stop", 1);
  config.set("HVD_RANKS_PER_NODE", per_node);
  auto world = transport::LoopbackWorld::make(size);
  std::atomic<bool> armed{false};
  std::atomic<int> ready{0};
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      std::unique_ptr<transport::Transport> own = world->open(r);
      if (r == size - 1) own = std::make_unique<FlippingTransport>(std::move(own), armed, tag);
      Rank rank(std::move(own), r, config);
      std::vector<float> in(static_cast<std::size_t>(elements), 1), out(in.size());
      std::string& text = texts[static_cast<std::size_t>(r)];
      rank.try_run(Rank::request(HVD_ALLREDUCE, "first", {1}, in.data(), out.data()), &text, 60);
      if (++ready == size) armed = true;
      while (!armed) std::this_thread::yield();
      rank.try_run(Rank::request(HVD_ALLREDUCE, "sent", {elements}, in.data(), out.data()), &text, 60);
      for (int i = 0; i < 1000 && text.empty(); ++i)
        rank.try_run(Rank::request(HVD_ALLREDUCE, "later", {1}, in.data(), out.data()), &text, 60);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& text : texts) CHECK(text == texts[0]);
  return texts[0];
}

}  // namespace

TEST_CASE("agreement: stage of hosts that got other bytes") {
  const std::string whole = flipped_on_the_way(3, 1, 1000, transport::Tag::data);
  CHECK(whole.find("'sent' in step ") != std::string::npos);
  CHECK(whole.find("is not on rank 2 what it is") != std::string::npos);
  CHECK(whole.find("; stage: bytes sent between hosts, or the sum") != std::string::npos);
  const std::string parts = flipped_on_the_way(3, 1, 4 << 20, transport::Tag::second);
  CHECK(parts.find("is not on rank 2 what it is") != std::string::npos);
  CHECK(parts.ends_with("; stage: bytes sent between hosts"));
  const std::string shared = flipped_on_the_way(6, 2, 4 << 20, transport::Tag::second);
  CHECK(shared.find("is not on ranks 4-5 what it is") != std::string::npos);
  CHECK(shared.ends_with("; stage: bytes sent between hosts"));
}

TEST_CASE("agreement: a rank that is behind is compared later; one that is far behind is not") {
  AgreeingRanks ranks(2, agreement_config("report", 1));
  std::vector<float> same(4, 1), different(4, 2);
  for (int i = 0; i < 10; ++i) ranks.end(0, 0, same);
  CHECK(!ranks.compare());
  for (int i = 0; i < 9; ++i) ranks.end(1, 0, same);
  CHECK(!ranks.compare());
  ranks.end(1, 0, different);
  CHECK(ranks.compare());
  CHECK(!ranks.compare());
  for (std::size_t i = 0; i < memory::agreement_words + 5; ++i) ranks.end(1, 0, i < 5 ? different : same);
  for (std::size_t i = 0; i < memory::agreement_words + 5; ++i) ranks.end(0, 0, same);
  CHECK(!ranks.compare());  // the words of the five were used again
  ranks.end(0, 0, same), ranks.end(1, 0, different);
  CHECK(ranks.compare());
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
        agreement_config("stop", 3));
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
        agreement_config("stop", 2));
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
        agreement_config("stop", 1));
    for (const auto& [rank, text] : texts) {
      CHECK(text.find("the result of 'weights' in step ") != std::string::npos);
      CHECK(text.find(s.size == 3 ? "is not on rank 1 what it is on the others"
                                  : "differs between rank 0 and rank 1,") != std::string::npos);
    }
  }
}
#endif
