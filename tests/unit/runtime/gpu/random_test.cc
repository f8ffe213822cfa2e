/// Random operations on (fake) GPUs: kinds, sizes, sets, lanes, forms, and how many are under way.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>

#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int cases_of_a_world = 25;

core::Config config_of(unsigned seed) {
  core::Config config;
  config.gpu_through_host = seed % 5 == 4;
  if (seed % 5 == 3) config = by_mpi();
  if (seed % 5 == 2) config.gpu_by_mpi = bit_of(Kind::broadcast), config.gpu_aware_mpi = 1;
  config.nccl_wide = seed % 7 == 6;
  config.fusion_bytes = seed % 3 == 0 ? 4096 : 128 << 20;
  config.nccl_streams = 1 + static_cast<int>(seed / 4 % 3);
  config.sums_by_nodes = config.gathers_by_nodes = seed / 4 % 2 == 1;
  return config;
}

/// One rank's operations; the numbers that it draws are the same on all.
class Operations {
 public:
  Operations(Rank& rank, unsigned seed) : rank_(rank), gpu_(rank), same_(seed) {
    everybody_.resize(static_cast<std::size_t>(rank.size()));
    std::iota(everybody_.begin(), everybody_.end(), 0);
    some_.assign(everybody_.rbegin() + (rank.size() > 2), everybody_.rend());  // in another order
  }

  void run(int cases) {
    for (int c = 0; c < cases; ++c) {
      if (c == 10 && rank_.size() > 2) set_ = rank_.engine().add_set(some_);
      one(c);
    }
    finish();
  }

 private:
  struct UnderWay {
    core::Operation* op;
    std::string name;
    const void* out;  ///< nullptr: a result of its own
    std::vector<float> expected;
  };

  void one(int c) {
    const bool in_set = set_ != HVD_GLOBAL_SET && same_() % 3 == 0;
    const std::vector<int>& whose = in_set ? some_ : everybody_;
    const unsigned size = static_cast<unsigned>(whose.size());
    const auto n = static_cast<std::size_t>(same_() % 6 == 0 ? same_() % 60000 : same_() % 300);
    const unsigned kind = same_() % 8, root = same_() % size, late = same_() % 400, average = same_() % 3;
    const bool host = same_() % 5 == 0, flush = same_() % 6 == 0;
    const auto found = std::find(whose.begin(), whose.end(), rank_.rank());
    if (found == whose.end()) return;
    const auto me = static_cast<std::size_t>(found - whose.begin());
    names_.push_back((in_set ? "in" : "") + std::string(host ? "h" : "g") + std::to_string(c % 10) + "/" +
                     std::to_string(std::min(kind, 4u)));
    const std::string& name = names_.back();
    const bool busy = std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& u) { return u.name == name; });
    if (busy || flush) finish();
    hvd_request q{};
    std::vector<float> expected;
    if (kind == 1 && !host) {  // rows of 3, another number on each rank
      auto part = [&](int r) { return floats((n % 40 + static_cast<std::size_t>(r)) * 3, r, c); };
      for (const int r : whose) {
        const auto theirs = part(r);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      const auto mine = part(rank_.rank());
      q = Rank::request(HVD_ALLGATHER, name.c_str(), {static_cast<std::int64_t>(mine.size() / 3), 3},
                        gpu_.tensor(mine.data(), mine.size() * 4, static_cast<int>(late)), nullptr);
    } else if (kind == 2 && !host) {  // rows of 2, which seldom divide
      const std::size_t rows = n % 100 + 1, each = rows / size, more = rows % size;
      const auto v = floats(rows * 2, rank_.rank(), c), whole = sum_of_floats(rows * 2, whose, c);
      const std::size_t begin = each * me + std::min(me, more), end = begin + each + (me < more ? 1 : 0);
      expected.assign(whole.begin() + static_cast<long>(begin * 2), whole.begin() + static_cast<long>(end * 2));
      q = Rank::request(HVD_REDUCESCATTER, name.c_str(), {static_cast<std::int64_t>(rows), 2},
                        gpu_.tensor(v.data(), v.size() * 4, static_cast<int>(late)), nullptr, HVD_F32, HVD_SUM);
    } else {
      const auto v = floats(n, rank_.rank(), c);
      void* t = gpu_.tensor(v.data(), n * 4, static_cast<int>(late));
      const bool moves = kind == 3 || kind == 4, averages = !moves && average == 0;
      expected = moves ? floats(n, whose[root], c)
                       : sum_of_floats(n, whose, c, averages ? 1.f / static_cast<float>(size) : 1.f);
      q = Rank::request(moves ? HVD_BROADCAST : HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(n)}, t, t,
                        HVD_F32, averages ? HVD_AVERAGE : HVD_SUM);
      if (host) cuStreamSynchronize(gpu_.stream());
      q.root = moves ? static_cast<std::int32_t>(root) : 0;
    }
    if (in_set) q.set = set_;
    const void* out = q.out;
    under_way_.push_back({&rank_.submit(host ? q : gpu_.on_gpu(q)), name, out, std::move(expected)});
  }

  void finish() {
    for (UnderWay& u : under_way_) {
      gpu_.arrive(*u.op);
      const auto got = read(u.out ? u.out : u.op->result, u.expected.size());
      gpu_.release(*u.op);
      EXPECT(near(got, u.expected));
    }
    under_way_.clear();
  }

  Rank& rank_;
  GpuRank gpu_;
  std::mt19937 same_;
  std::vector<int> everybody_, some_;
  std::int32_t set_ = HVD_GLOBAL_SET;  ///< from the tenth case on: of some_
  std::deque<std::string> names_;
  std::vector<UnderWay> under_way_;
};

/// What went wrong; empty: nothing.
std::string failure_of(unsigned seed, int cases) {
  const int ranks = 1 + static_cast<int>(seed % 4);
  std::mutex mutex;
  std::string failure;
  run_world(
      ranks, ranks > 2 && seed % 2 ? 2 : ranks,
      [&](Rank& rank) {
        try {
          Operations(rank, seed).run(cases);
        } catch (const std::exception& e) {
          std::lock_guard lock(mutex);
          failure += "rank " + std::to_string(rank.rank()) + ": " + e.what() + "; ";
        }
      },
      config_of(seed));
  return failure;
}

/// The fewest cases of a world that go wrong, to be run again alone.
std::string shrunk(unsigned seed, int cases, const std::string& failure) {
  for (int fewer = 1; fewer < cases; ++fewer)
    if (const std::string less = failure_of(seed, fewer); !less.empty())
      return "HVD_RANDOM_SEED=" + std::to_string(seed) + " HVD_RANDOM_CASES=" + std::to_string(fewer) + ": " + less;
  return "HVD_RANDOM_SEED=" + std::to_string(seed) + " HVD_RANDOM_CASES=" + std::to_string(cases) + ": " + failure;
}

}  // namespace

TEST_CASE("random operations, in every mixture") {
  const char* wanted = std::getenv("HVD_RANDOM_CASES");
  const int cases = wanted ? std::atoi(wanted) : 2000 / (slower * slower);
  const char* given = std::getenv("HVD_RANDOM_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : 20;
  for (int done = 0; done < cases; done += cases_of_a_world) {
    const int some = std::min(cases_of_a_world, cases - done);
    const unsigned of_world = seed + static_cast<unsigned>(done);
    const std::string failure = failure_of(of_world, some);
    if (!failure.empty()) FAIL(shrunk(of_world, some, failure));
  }
}
