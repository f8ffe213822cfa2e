/// The rows that compare allreduce through the C interface with MPI_Allreduce, and with memcpy.
///
/// The contenders alternate, round by round, since machines change speed by themselves. Buffers rotate, so that no size
/// lives in the caches alone.
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "base/format.h"
#include "bench.h"

namespace hvd::bench {
namespace {

constexpr std::size_t kib = 1 << 10, mib = 1 << 20;
enum class BufferMemory { plain, registered };

struct AllreduceCase {
  std::string key, title;
  std::size_t bytes = 0;  ///< bytes of each tensor
  int tensors = 1;
  int rounds = 6, repeats = 5;  ///< rounds alternate the contenders; repeats are timed one by one
  bool in_place = true;
  bool copies = false;  ///< memcpy of the size by all ranks at once is a contender
  BufferMemory memory = BufferMemory::plain;
  std::size_t most_sets = 16;
  bool many_calls = false;  ///< hvd_submit for each tensor, not hvd_submit_many
};

float* make(std::size_t bytes, BufferMemory memory) {
  void* p = nullptr;
  bytes = std::max<std::size_t>(bytes, 64);
  if (memory == BufferMemory::registered)
    need(hvd_alloc(bytes, &p), "hvd_alloc");
  else if (posix_memalign(&p, 64, bytes) != 0)
    stop("memory");
  std::memset(p, 0, bytes);
  return static_cast<float*>(p);
}

class AllreduceBench {
 public:
  explicit AllreduceBench(const AllreduceCase& c) : c_(c), shape_(static_cast<std::int64_t>(c.bytes / sizeof(float))) {
    const auto tensors = static_cast<std::size_t>(c.tensors);
    // Several sets of buffers, unless that would be more than 192 MiB.
    sets_ = std::clamp<std::size_t>(192 * mib / (c.bytes * tensors + 1), 1, c.most_sets);
    for (std::size_t i = 0; i < sets_ * tensors; ++i) {
      buffers_.push_back(make(c.bytes, c.memory));
      outs_.push_back(c.in_place ? buffers_.back() : make(c.bytes, c.memory));
    }
    for (int t = 0; t < c.tensors; ++t) names_.push_back(formatted("{}.{}", c.key, t));
    requests_.resize(tensors);
    handles_.resize(tensors);
    if (c.copies) copy_ = {make(c.bytes, BufferMemory::plain), make(c.bytes, BufferMemory::plain)};
  }
  ~AllreduceBench() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (outs_[i] != buffers_[i]) hvd_free(outs_[i]);
      hvd_free(buffers_[i]);
    }
    std::free(copy_.first);
    std::free(copy_.second);
  }

  BenchRow run() {
    std::vector<std::function<void()>> sides = {[this] { ours(); }, [this] { theirs(); }};
    BenchRow row{c_.key, c_.title, {{"hvd", {}}, {"MPI", {}}}, {}, 0, {}};
    if (c_.copies) {
      sides.push_back([this] { std::memcpy(copy_.first, copy_.second, c_.bytes); });
      row.times.push_back({"memcpy", {}});
    }
    for (std::size_t i = 0; i < std::max<std::size_t>(3, sets_); ++i) ours(), theirs();
    for (int r = 0; r < c_.rounds; ++r)
      for (std::size_t s = 0; s < sides.size(); ++s) measure(row.times[s].second, sides[s]);
    return row;
  }

 private:
  void measure(Stats& stats, const std::function<void()>& f) {
    MPI_Barrier(MPI_COMM_WORLD);
    f();
    for (int i = 0; i < c_.repeats; ++i) {
      const auto start = Clock::now();
      f();
      stats.add(since_us(start));
    }
  }
  std::size_t next() {
    turn_ = (turn_ + 1) % sets_;
    return turn_ * static_cast<std::size_t>(c_.tensors);
  }
  void ours() {
    const std::size_t at = next(), count = requests_.size();
    for (std::size_t t = 0; t < count; ++t)
      requests_[t] = sum(names_[t].c_str(), &shape_, buffers_[at + t], outs_[at + t]);
    if (count == 1) return need(hvd_run(requests_.data()), "hvd_run");
    if (c_.many_calls)
      for (std::size_t t = 0; t < count; ++t) need(hvd_submit(&requests_[t], &handles_[t]), "hvd_submit");
    else
      need(hvd_submit_many(requests_.data(), count, 0, handles_.data()), "hvd_submit_many");
    need(hvd_wait_many(handles_.data(), count, -1), "hvd_wait_many");
    need(hvd_release_many(handles_.data(), count), "hvd_release_many");
  }
  void theirs() {
    const std::size_t at = next();
    for (std::size_t t = 0; t < requests_.size(); ++t)
      MPI_Allreduce(c_.in_place ? MPI_IN_PLACE : buffers_[at + t], outs_[at + t], static_cast<int>(shape_), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
  }

  AllreduceCase c_;
  std::int64_t shape_ = 0;
  std::size_t sets_ = 1, turn_ = 0;
  std::vector<float*> buffers_, outs_;
  std::pair<float*, float*> copy_{nullptr, nullptr};
  std::vector<std::string> names_;
  std::vector<hvd_request> requests_;
  std::vector<hvd_handle> handles_;
};

std::vector<AllreduceCase> cases() {
  std::vector<AllreduceCase> list = {
      {.key = "4B", .title = "4 B", .bytes = 4, .rounds = 10, .repeats = 1000},
      {.key = "sweep", .title = "1 KiB", .bytes = kib, .repeats = 300},
      {.key = "sweep", .title = "8 KiB", .bytes = 8 * kib, .repeats = 300},
      {.key = "sweep", .title = "16 KiB", .bytes = 16 * kib, .repeats = 200},
      {.key = "sweep", .title = "32 KiB", .bytes = 32 * kib, .repeats = 200},
      {.key = "sweep", .title = "33 KiB", .bytes = 33 * kib, .repeats = 200},
      {.key = "sweep", .title = "64 KiB", .bytes = 64 * kib, .repeats = 200},
      {.key = "sweep", .title = "256 KiB", .bytes = 256 * kib, .rounds = 10, .repeats = 60},
      {.key = "1MiB", .title = "1 MiB", .bytes = mib, .rounds = 12, .repeats = 30},
      {.key = "8MiB", .title = "8 MiB", .bytes = 8 * mib, .rounds = 10, .repeats = 6},
      {.key = "64MiB", .title = "64 MiB, in place", .bytes = 64 * mib, .rounds = 10, .repeats = 3, .copies = true},
      {.key = "64MiB-out",
       .title = "64 MiB, out of place",
       .bytes = 64 * mib,
       .rounds = 10,
       .repeats = 3,
       .in_place = false,
       .copies = true},
      {.key = "1MiB-registered",
       .title = "1 MiB, registered",
       .bytes = mib,
       .rounds = 12,
       .repeats = 30,
       .memory = BufferMemory::registered},
      {.key = "64MiB-registered",
       .title = "64 MiB, registered",
       .bytes = 64 * mib,
       .rounds = 10,
       .repeats = 3,
       .memory = BufferMemory::registered},
      {.key = "200x4KB", .title = "200 x 4 KB, one call", .bytes = 4096, .tensors = 200, .rounds = 10, .repeats = 10},
      {.key = "200x4KB",
       .title = "200 x 4 KB, a call each",
       .bytes = 4096,
       .tensors = 200,
       .rounds = 10,
       .repeats = 10,
       .many_calls = true},
      {.key = "160x640KB", .title = "160 x 640 KB", .bytes = 655360, .tensors = 160, .repeats = 3},
      {.key = "1000", .title = "1 000 x 4 B, known", .bytes = 4, .tensors = 1000, .rounds = 10, .repeats = 10},
      {.key = "names", .title = "1 000 x 4 B, known", .bytes = 4, .tensors = 1000, .repeats = 10, .most_sets = 1},
      {.key = "names", .title = "2 000 x 4 B", .bytes = 4, .tensors = 2000, .repeats = 5, .most_sets = 1},
      {.key = "names", .title = "10 000 x 4 B", .bytes = 4, .tensors = 10'000, .repeats = 3, .most_sets = 1},
      {.key = "names",
       .title = "100 000 x 4 B",
       .bytes = 4,
       .tensors = 100'000,
       .rounds = 3,
       .repeats = 2,
       .most_sets = 1},
  };
  return list;
}

}  // namespace

void allreduce_rows(BenchReport& report, const std::string& only) {
  for (const AllreduceCase& c : cases())
    if (only.empty() || only == c.key) report.add(AllreduceBench(c).run());
}

}  // namespace hvd::bench
