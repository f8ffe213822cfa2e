/// The shared-memory backend alone, without names and negotiation, compared with MPI_Allreduce.
///
/// This is the only file of the tools that uses the runtime's internals. The file drives the stages of ops/shm on
/// memory that MPI shares, for ranks of one node only.
#include <mpi.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/format.h"
#include "bench.h"
#include "memory/backoff.h"
#include "ops/allreduce/shm.h"
#include "ops/shm/distance.h"
#include "ops/shm/eager.h"

namespace hvd::bench {
namespace {

class ShmBackend {
 public:
  ShmBackend() : node_(geometry(), rank), rings_(node_), allreduce_(rings_) {
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm_);
    const auto bytes = static_cast<MPI_Aint>(node_.total_bytes() + 4096);
    void* mine = nullptr;
    MPI_Win_allocate_shared(rank == 0 ? bytes : 0, 1, MPI_INFO_NULL, comm_, &mine, &window_);
    MPI_Aint length;
    int unit;
    void* base = nullptr;
    MPI_Win_shared_query(window_, 0, &length, &unit, &base);
    base = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(base) + 4095) / 4096 * 4096);
    if (rank == 0) std::memset(base, 0, node_.total_bytes());
    MPI_Barrier(comm_);
    node_.attach(std::shared_ptr<void>(base, [](void*) {}));
    slots_.emplace(node_);
  }
  ~ShmBackend() {
    MPI_Win_free(&window_);
    MPI_Comm_free(&comm_);
  }

  void allreduce(float* data, std::size_t bytes) {
    ops::Item item;
    item.in = item.out = reinterpret_cast<unsigned char*>(data);
    item.in = item.out;
    item.bytes = bytes;
    item.element_bytes = sizeof(float);
    item.reduce = reduce_;
    if (bytes <= ops::eager_limit) return small(item);
    stream_.clear();
    stream_.add(item);
    rings_.streaming = distance_.streaming(node_, bytes);
    allreduce_.begin(stream_, allreduce_.cut(stream_, size), nullptr);
    memory::Backoff backoff(false);
    while (!allreduce_.done())
      if (allreduce_.step())
        backoff.reset();
      else
        backoff.pause();
  }

 private:
  static memory::Geometry geometry() {
    memory::Geometry g;
    g.ranks = size;
    g.words = 1;
    g.eager_bytes = 64 << 10;
    g.record_bytes = g.command_bytes = 4096;
    return g;
  }
  /// Runs like an eager batch, but with a counter instead of the ready bits.
  void small(const ops::Item& item) {
    const unsigned parity = static_cast<unsigned>(++round_ & 1);
    std::memcpy(slots_->at(rank, 0, parity), item.in, item.bytes);
    node_.presence(rank).read.store(round_, std::memory_order_release);
    for (int r = 0; r < size; ++r)
      while (node_.presence(r).read.load(std::memory_order_acquire) < round_) memory::cpu_relax();
    slots_->reduce(item.reduce, item.scale, 0, parity, item.bytes / item.element_bytes, item.out);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  memory::Node node_;
  std::optional<ops::EagerSlots> slots_;
  ops::Rings rings_;
  ops::ShmAllreduce allreduce_;
  ops::Distance distance_;
  ops::Stream stream_;
  const ops::ReduceFn reduce_ = ops::reducer(DType::f32, Reduce::sum);
  std::uint64_t round_ = 0;
};

std::string size_name(std::size_t bytes) {
  if (bytes >= 1 << 20) return formatted("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10) return formatted("{} KiB", bytes >> 10);
  return formatted("{} B", bytes);
}

BenchRow compare(ShmBackend& backend, std::size_t bytes) {
  BenchRow row{"backend", "backend alone, " + size_name(bytes), {{"hvd", {}}, {"MPI", {}}}, {}, 0, {}};
  const std::size_t sets = std::clamp<std::size_t>((64u << 20) / bytes, 2, 16);
  std::vector<float*> buffers;
  for (std::size_t i = 0; i < sets; ++i) {
    void* p = nullptr;
    if (posix_memalign(&p, 64, std::max<std::size_t>(bytes, 64)) != 0) stop("memory");
    std::memset(p, 0, bytes);
    buffers.push_back(static_cast<float*>(p));
  }
  std::size_t turn = 0;
  const int repeats = bytes <= 65536 ? 400 : bytes <= 1 << 20 ? 40 : bytes <= 8 << 20 ? 8 : 3;
  for (int round = 0; round < 11; ++round)
    for (auto& [who, stats] : row.times) {
      MPI_Barrier(MPI_COMM_WORLD);
      for (int i = -2; i < repeats; ++i) {
        float* data = buffers[++turn % sets];
        const auto start = Clock::now();
        if (who == "hvd")
          backend.allreduce(data, bytes);
        else
          MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD);
        if (i >= 0 && round > 0) stats.add(since_us(start));
      }
    }
  for (float* p : buffers) std::free(p);
  return row;
}

}  // namespace

void backend_rows(BenchReport& report, const std::string& only) {
  if (!only.empty() && only != "backend") return;
  ShmBackend backend;
  double log_sum = 0, least = 1e9;
  std::string least_at;
  int count = 0;
  for (std::size_t bytes = 8; bytes <= std::size_t{64} << 20; bytes *= 2) {
    const BenchRow row = compare(backend, bytes);
    report.add(row);
    const double ratio = row.times[1].second.min() / row.times[0].second.min();
    log_sum += std::log(ratio);
    ++count;
    if (ratio < least) least = ratio, least_at = size_name(bytes);
  }
  const double mean = std::exp(log_sum / count);
  const std::string text = formatted("MPI / backend: geometric mean {:.2f}, least {:.2f} at {}", mean, least, least_at);
  report.add({"backend", "backend alone, 8 B-64 MiB", {}, text, mean, "geometric mean"});
  report.add({"backend", "backend alone, least", {}, text, least, "least ratio"});
}

}  // namespace hvd::bench
