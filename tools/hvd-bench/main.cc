/// @file main.cc — hvd-bench: libhvd beside plain MPI, in one run, without Python.
///
/// Start it under mpirun or hvdrun.  The two take turns round by round, since
/// machines change speed by themselves; the flag round trip between the first
/// two ranks' cores is printed before and after for the same reason.  Buffers
/// rotate, so that no size lives in the cache alone.
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "hvd/hvd.h"
#include "stats.h"

namespace {

using hvd::bench::Stats;
using Clock = std::chrono::steady_clock;

int rank = 0, size = 1;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "hvd-bench: rank %d: %s: %s\n", rank, what, hvd_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}
void need(int status, const char* what) {
  if (status != HVD_OK) stop(what);
}

/// One-way flag there and back between ranks 0 and 1, nanoseconds; 0 where they do not share memory.
double flag_round_trip() {
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  int local = 0, locals = 1;
  MPI_Comm_rank(node, &local);
  MPI_Comm_size(node, &locals);
  double ns = 0;
  void* mine = nullptr;
  MPI_Win window;
  MPI_Win_allocate_shared(256, 1, MPI_INFO_NULL, node, &mine, &window);
  MPI_Aint bytes;
  int unit;
  void* base = nullptr;
  MPI_Win_shared_query(window, 0, &bytes, &unit, &base);
  auto* flags = static_cast<std::atomic<unsigned>*>(base);
  if (local == 0) flags[0] = flags[32] = 0;
  MPI_Barrier(node);
  constexpr unsigned rounds = 2000;
  if (locals > 1 && local < 2) {
    const auto start = Clock::now();
    for (unsigned i = 1; i <= rounds; ++i) {
      if (local == 0) flags[0].store(i, std::memory_order_release);
      while (flags[local == 0 ? 32 : 0].load(std::memory_order_acquire) != i)
        ;
      if (local == 1) flags[32].store(i, std::memory_order_release);
    }
    ns = since_us(start) * 1000 / rounds;
  }
  MPI_Barrier(node);
  MPI_Win_free(&window);
  MPI_Comm_free(&node);
  return ns;
}

struct Case {
  std::string name;
  std::size_t bytes = 0;  ///< of each tensor
  int tensors = 1;
  int rounds = 5, repeats = 5;  ///< rounds change sides; repeats are timed one by one
  bool in_place = true;
};

class Bench {
 public:
  explicit Bench(const Case& c) : c_(c) {
    const std::size_t elements = c.bytes / sizeof(float);
    shape_ = static_cast<std::int64_t>(elements);
    // Up to four sets of buffers, unless that would be more than 256 MiB.
    sets_ = std::max<std::size_t>(
        1, std::min<std::size_t>(4, (std::size_t{256} << 20) / (c.bytes * static_cast<std::size_t>(c.tensors) + 1)));
    for (std::size_t s = 0; s < sets_; ++s)
      for (int t = 0; t < c.tensors; ++t) {
        void* p = nullptr;
        if (posix_memalign(&p, 64, std::max<std::size_t>(c.bytes, 64)) != 0) stop("memory");
        std::memset(p, 0, c.bytes);
        buffers_.push_back(static_cast<float*>(p));
        void* o = nullptr;
        if (!c.in_place && posix_memalign(&o, 64, std::max<std::size_t>(c.bytes, 64)) != 0) stop("memory");
        if (o) std::memset(o, 0, c.bytes);
        outs_.push_back(c.in_place ? static_cast<float*>(p) : static_cast<float*>(o));
      }
    for (int t = 0; t < c.tensors; ++t) names_.push_back(c.name + "." + std::to_string(t));
    requests_.resize(static_cast<std::size_t>(c.tensors));
    handles_.resize(static_cast<std::size_t>(c.tensors));
  }
  ~Bench() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (outs_[i] != buffers_[i]) std::free(outs_[i]);
      std::free(buffers_[i]);
    }
  }

  void run() {
    for (int i = 0; i < 3; ++i) ours(), theirs();
    for (int r = 0; r < c_.rounds; ++r) {
      measure(ours_, [this] { ours(); });
      measure(theirs_, [this] { theirs(); });
    }
    if (rank == 0)
      std::printf("%-14s %10.2f %10.2f %10.2f | %10.2f %10.2f %10.2f | %7.2f %7.2f\n", c_.name.c_str(), ours_.min(),
                  ours_.median(), ours_.p99(), theirs_.min(), theirs_.median(), theirs_.p99(),
                  theirs_.min() / ours_.min(), theirs_.median() / ours_.median());
    std::fflush(stdout);
  }

 private:
  template <class F>
  void measure(Stats& stats, F&& f) {
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
  void fill(hvd_request& q, std::size_t t, std::size_t at) {
    q = {};
    q.struct_size = sizeof q;
    q.kind = HVD_ALLREDUCE;
    q.dtype = HVD_F32;
    q.reduce = HVD_SUM;
    q.name = names_[t].c_str();
    q.shape = &shape_;
    q.ndim = 1;
    q.device = HVD_HOST_DEVICE;
    q.in = buffers_[at + t];
    q.out = outs_[at + t];
  }
  void ours() {
    const std::size_t at = next(), count = requests_.size();
    for (std::size_t t = 0; t < count; ++t) fill(requests_[t], t, at);
    if (count == 1) return need(hvd_run(requests_.data()), "hvd_run");
    need(hvd_submit_many(requests_.data(), count, 0, handles_.data()), "hvd_submit_many");
    for (hvd_handle h : handles_) need(hvd_wait(h, -1), "hvd_wait");
    for (hvd_handle h : handles_) need(hvd_release(h), "hvd_release");
  }
  void theirs() {
    const std::size_t at = next();
    for (std::size_t t = 0; t < requests_.size(); ++t)
      MPI_Allreduce(c_.in_place ? MPI_IN_PLACE : buffers_[at + t], outs_[at + t], static_cast<int>(shape_), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
  }

  Case c_;
  std::int64_t shape_ = 0;
  std::size_t sets_ = 1, turn_ = 0;
  std::vector<float*> buffers_, outs_;
  std::vector<std::string> names_;
  std::vector<hvd_request> requests_;
  std::vector<hvd_handle> handles_;
  Stats ours_, theirs_;
};

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/// The share of a core that a rank with nothing to do uses, and its switches.
void idle(double seconds) {
  usleep(200000);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const double start = cpu_seconds();
  usleep(static_cast<useconds_t>(seconds * 1e6));
  const double used = cpu_seconds() - start;
  getrusage(RUSAGE_SELF, &after);
  if (rank == 0)
    std::printf("idle %.1f s: %.4f %% of a core, %ld voluntary context switches on rank 0\n", seconds,
                100 * used / seconds, after.ru_nvcsw - before.ru_nvcsw);
}

std::string size_name(std::size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

void table() {
  const double before = flag_round_trip();
  if (rank == 0)
    std::printf(
        "%d ranks, float32 sum, microseconds; ratio: MPI_Allreduce / hvd\nflag round trip before: %.0f ns\n"
        "%-14s %32s | %32s | %15s\n%-14s %10s %10s %10s | %10s %10s %10s | %7s %7s\n",
        size, before, "", "hvd", "MPI_Allreduce", "ratio", "", "min", "median", "p99", "min", "median", "p99", "min",
        "median");
  for (std::size_t bytes = 4; bytes <= std::size_t{64} << 20; bytes *= 4) {
    const int repeats = bytes <= 65536 ? 200 : bytes <= 4 << 20 ? 30 : 4;
    Bench({size_name(bytes), bytes, 1, 6, repeats, true}).run();
  }
  Bench({"64 MiB oop", std::size_t{64} << 20, 1, 6, 4, false}).run();
  Bench({"200 x 4 KB", 4096, 200, 8, 10, true}).run();
  Bench({"1000 x 400 B", 400, 1000, 8, 10, true}).run();
  Bench({"160 x 640 KB", 655360, 160, 4, 3, true}).run();
  const double after = flag_round_trip();
  if (rank == 0) std::printf("flag round trip after: %.0f ns\n", after);
}

int usage(FILE* to, int code) {
  std::fprintf(to,
               "usage: mpirun -np N hvd-bench [--check | --idle [SECONDS]]\n"
               "  compares libhvd with plain MPI_Allreduce, both in one run\n"
               "  --check   verifies results of all operations and dtypes; exit code 1 when one is wrong\n"
               "  --idle    measures the CPU time of idle ranks (default 3 s)\n");
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--help" || mode == "-h") return usage(stdout, 0);
  if (mode != "" && mode != "--check" && mode != "--idle") return usage(stderr, 2);
  // Serialised where only this thread calls MPI: the fastest MPI there is to compare with.
  const char* locals = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = std::getenv("OMPI_COMM_WORLD_SIZE");
  const bool one_node = locals && all && std::strcmp(locals, all) == 0 && !std::getenv("HVD_RANKS_PER_NODE");
  int provided = 0;
  MPI_Init_thread(&argc, &argv, one_node ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  need(hvd_init(nullptr), "hvd_init");
  int wrong = 0;
  if (mode == "--check") {
    wrong = hvd::bench::check(rank, size);
    if (rank == 0 && wrong == 0) std::printf("hvd-bench: results are right on %d ranks\n", size);
  } else {
    if (mode == "") table();
    idle(argc > 2 ? std::atof(argv[2]) : 3);
  }
  need(hvd_shutdown(), "hvd_shutdown");
  MPI_Finalize();
  return wrong ? 1 : 0;
}
