/// Random operations on (fake) GPUs: kinds, types, sizes, sets, slots, forms, and the number in progress.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>

#include "common/float8.h"
#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int cases_of_a_world = 25;

core::Config config_of(unsigned seed) {
  core::Config config;
  if (seed % 5 == 4) send_through_host(config, nccl::gpu_kinds);
  if (seed % 5 == 2) send_through_host(config, bit_of(Kind::broadcast));
  config.set("HVD_NCCL_WIDE", seed % 7 == 6);
  config.set("HOROVOD_FUSION_THRESHOLD", seed % 3 == 0 ? 4096 : 128 << 20);
  config.set("HOROVOD_NUM_NCCL_STREAMS", 1 + static_cast<int>(seed / 4 % 3));
  config.set("HOROVOD_HIERARCHICAL_ALLREDUCE", seed / 4 % 2 == 1)
      .set("HOROVOD_HIERARCHICAL_ALLGATHER", seed / 4 % 2 == 1);
  return config;
}

template <class T>
std::vector<unsigned char> eights(const std::vector<float>& v) {
  std::vector<unsigned char> bytes;
  for (const float x : v) bytes.push_back(to_float8<T>(x).bits);
  return bytes;
}

/// Values for tensors of @p dtype: integers of few bits, so each sum is exact before it is rounded.
std::vector<unsigned char> bytes_of(hvd_dtype dtype, const std::vector<float>& v) {
  if (dtype == HVD_F8E4M3) return eights<f8e4m3>(v);
  if (dtype == HVD_F8E5M2) return eights<f8e5m2>(v);
  std::vector<unsigned char> bytes(v.size() * sizeof(float));
  if (!v.empty()) std::memcpy(bytes.data(), v.data(), bytes.size());
  return bytes;
}

std::vector<float> numbers_of(hvd_dtype dtype, const void* memory, std::size_t n) {
  if (dtype == HVD_F32) return read(memory, n);
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t bits = static_cast<const std::uint8_t*>(memory)[i];
    v[i] = dtype == HVD_F8E4M3 ? from_float8(f8e4m3{bits}) : from_float8(f8e5m2{bits});
  }
  return v;
}

std::vector<float> rounded(hvd_dtype dtype, const std::vector<float>& v) {
  return numbers_of(dtype, bytes_of(dtype, v).data(), v.size());
}

enum class What { sum, move, gather, scatter, exchange };

/// One random operation. All ranks draw the same values; only `me`, the place among the members, differs.
struct Drawn {
  What what = What::sum;
  hvd_dtype dtype = HVD_F32;
  std::size_t n = 0;
  unsigned root = 0;
  int late_us = 0, number = 0;
  bool average = false, equal = false, host = false, in_set = false;
  const std::vector<int>* whose = nullptr;
  std::size_t me = 0;

  /// Returns the tensor of a member.
  std::vector<float> numbers(std::size_t count, int rank) const { return rounded(dtype, floats(count, rank, number)); }
  std::vector<float> sum(std::size_t count) const {
    std::vector<float> total(count);
    for (const int r : *whose) {
      const auto v = numbers(count, r);
      for (std::size_t i = 0; i < count; ++i) total[i] += v[i];
    }
    const float share = average ? 1.f / static_cast<float>(whose->size()) : 1.f;
    for (float& x : total) x *= share;
    return rounded(dtype, total);
  }
  /// Returns the rows that the member at @p from sends to the one at @p to.
  std::size_t rows(std::size_t from, std::size_t to) const { return equal ? n % 20 : (from * 3 + to * 5 + n) % 7; }
};

/// The operations of one rank. The drawn numbers are the same on all ranks.
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
    hvd_dtype dtype;
    const void* out;  ///< nullptr: the operation allocates the result
    std::vector<float> expected;
    std::vector<std::int64_t> received;  ///< alltoall: the rows from each rank
  };

  Drawn draw(int number) {
    constexpr What kinds[] = {What::sum, What::gather,   What::scatter,  What::move, What::move,
                              What::sum, What::exchange, What::exchange, What::sum};
    constexpr hvd_dtype dtypes[] = {HVD_F32, HVD_F32, HVD_F8E4M3, HVD_F8E5M2};
    Drawn d;
    d.number = number;
    d.in_set = set_ != HVD_GLOBAL_SET && same_() % 3 == 0;
    d.whose = d.in_set ? &some_ : &everybody_;
    d.n = same_() % 6 == 0 ? same_() % 60000 : same_() % 300;
    d.host = same_() % 5 == 0;
    d.what = kinds[same_() % std::size(kinds)];
    if (d.host && d.what != What::move) d.what = What::sum;
    d.dtype = dtypes[same_() % std::size(dtypes)];
    d.root = static_cast<unsigned>(same_() % d.whose->size());
    d.late_us = static_cast<int>(same_() % 400);
    d.average = same_() % 3 == 0;
    d.equal = same_() % 2 == 0;
    return d;
  }

  void one(int c) {
    Drawn d = draw(c);
    const bool flush = same_() % 6 == 0;
    const auto found = std::find(d.whose->begin(), d.whose->end(), rank_.rank());
    if (found == d.whose->end()) return;
    d.me = static_cast<std::size_t>(found - d.whose->begin());
    names_.push_back((d.in_set ? "in" : "") + std::string(d.host ? "h" : "g") + std::to_string(c % 10) + "/" +
                     std::to_string(static_cast<int>(d.what)));
    const std::string& name = names_.back();
    const bool busy = std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& u) { return u.name == name; });
    if (busy || flush) finish();
    UnderWay u{nullptr, name, d.dtype, nullptr, {}, {}};
    splits_.clear();
    hvd_request q = d.what == What::gather     ? gather(d, u)
                    : d.what == What::scatter  ? scatter(d, u)
                    : d.what == What::exchange ? exchange(d, u)
                                               : in_place(d, u);
    if (d.in_set) q.set = set_;
    u.op = &rank_.submit(d.host ? q : gpu_.on_gpu(q));
    under_way_.push_back(std::move(u));
  }

  void* tensor(const Drawn& d, const std::vector<float>& v) {
    const auto bytes = bytes_of(d.dtype, v);
    return gpu_.tensor(bytes.data(), bytes.size(), d.late_us);
  }

  /// Rows of 3; their number differs from rank to rank.
  hvd_request gather(const Drawn& d, UnderWay& u) {
    auto part = [&](int r) { return d.numbers((d.n % 40 + static_cast<std::size_t>(r)) * 3, r); };
    for (const int r : *d.whose) {
      const auto theirs = part(r);
      u.expected.insert(u.expected.end(), theirs.begin(), theirs.end());
    }
    const auto mine = part(rank_.rank());
    return Rank::request(HVD_ALLGATHER, u.name.c_str(), {static_cast<std::int64_t>(mine.size() / 3), 3},
                         tensor(d, mine), nullptr, d.dtype);
  }

  /// Rows of 2, which seldom divide.
  hvd_request scatter(const Drawn& d, UnderWay& u) {
    const std::size_t size = d.whose->size(), rows = d.n % 100 + 1, each = rows / size, more = rows % size;
    const auto whole = d.sum(rows * 2);
    const std::size_t begin = each * d.me + std::min(d.me, more), end = begin + each + (d.me < more ? 1 : 0);
    u.expected.assign(whole.begin() + static_cast<long>(begin * 2), whole.begin() + static_cast<long>(end * 2));
    return Rank::request(HVD_REDUCESCATTER, u.name.c_str(), {static_cast<std::int64_t>(rows), 2},
                         tensor(d, d.numbers(rows * 2, rank_.rank())), nullptr, d.dtype,
                         d.average ? HVD_AVERAGE : HVD_SUM);
  }

  /// Rows of 2: the same number for each, or by splits, which may be zero.
  hvd_request exchange(const Drawn& d, UnderWay& u) {
    const std::size_t size = d.whose->size();
    for (std::size_t from = 0; from < size; ++from) {
      std::size_t total = 0, skip = 0;
      for (std::size_t to = 0; to < size; ++to) {
        if (to < d.me) skip += d.rows(from, to);
        total += d.rows(from, to);
      }
      const auto theirs = d.numbers(total * 2, (*d.whose)[from]);
      const std::size_t rows = d.rows(from, d.me);
      u.expected.insert(u.expected.end(), theirs.begin() + static_cast<long>(skip * 2),
                        theirs.begin() + static_cast<long>((skip + rows) * 2));
      u.received.push_back(static_cast<std::int64_t>(rows));
    }
    for (std::size_t to = 0; to < size; ++to) splits_.push_back(static_cast<std::int64_t>(d.rows(d.me, to)));
    const auto total = std::accumulate(splits_.begin(), splits_.end(), std::int64_t{0});
    hvd_request q =
        Rank::request(HVD_ALLTOALL, u.name.c_str(), {total, 2},
                      tensor(d, d.numbers(static_cast<std::size_t>(total) * 2, rank_.rank())), nullptr, d.dtype);
    if (d.equal) return q;
    q.splits = splits_.data();  // copied when submitted
    q.num_splits = static_cast<std::int32_t>(size);
    return q;
  }

  /// A sum or a broadcast.
  hvd_request in_place(const Drawn& d, UnderWay& u) {
    const bool moves = d.what == What::move;
    void* t = tensor(d, d.numbers(d.n, rank_.rank()));
    u.expected = moves ? d.numbers(d.n, (*d.whose)[d.root]) : d.sum(d.n);
    u.out = t;
    hvd_request q = Rank::request(moves ? HVD_BROADCAST : HVD_ALLREDUCE, u.name.c_str(),
                                  {static_cast<std::int64_t>(d.n)}, t, t, d.dtype, d.average ? HVD_AVERAGE : HVD_SUM);
    q.root = moves ? static_cast<std::int32_t>(d.root) : 0;
    if (d.host) cuStreamSynchronize(gpu_.stream());
    return q;
  }

  void finish() {
    for (UnderWay& u : under_way_) {
      gpu_.arrive(*u.op);
      const auto got = numbers_of(u.dtype, u.out ? u.out : u.op->result, u.expected.size());
      const auto received = u.op->received;
      gpu_.release(*u.op);
      EXPECT(near(got, u.expected));
      EXPECT(u.received.empty() || received == u.received);
    }
    under_way_.clear();
  }

  Rank& rank_;
  GpuRank gpu_;
  std::mt19937 same_;
  std::vector<int> everybody_, some_;
  std::int32_t set_ = HVD_GLOBAL_SET;  ///< from the tenth case on: of some_
  std::deque<std::string> names_;
  std::vector<std::int64_t> splits_;
  std::vector<UnderWay> under_way_;
};

/// Returns the error; empty: none.
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

/// Returns the variables for a run of the fewest cases of a world that fail, and the failure.
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
