/// @file main.cc — hvd-bench: compares libhvd with plain MPI, in one run, without Python.
///
/// Start it under mpirun or hvdrun. libhvd and MPI take turns in each round, because a machine's speed varies. For the
/// same reason, hvd-bench prints a flag's round trip between the cores of the first two ranks, before and after.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench.h"
#include "check_results.h"
#include "options/variable.h"

namespace hvd::bench {

int rank = 0, size = 1;

void stop(const char* what) {
  std::fprintf(stderr, "hvd-bench: rank %d: %s: %s\n", rank, what, hvd_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}
hvd_request sum(const char* name, const std::int64_t* elements, const void* in, void* out) {
  hvd_request q{};
  q.struct_size = sizeof q;
  q.kind = HVD_ALLREDUCE;
  q.dtype = HVD_F32;
  q.reduce = HVD_SUM;
  q.name = name;
  q.shape = elements;
  q.ndim = 1;
  q.device = HVD_HOST_DEVICE;
  q.in = in;
  q.out = out;
  return q;
}

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
  // The best of some series: other work on the cores must not look like distance.
  constexpr unsigned rounds = 200;
  for (unsigned series = 0; series < 10 && locals > 1 && local < 2; ++series) {
    const auto start = Clock::now();
    for (unsigned i = series * rounds + 1; i <= (series + 1) * rounds; ++i) {
      if (local == 0) flags[0].store(i, std::memory_order_release);
      while (flags[local == 0 ? 32 : 0].load(std::memory_order_acquire) != i)
        ;
      if (local == 1) flags[32].store(i, std::memory_order_release);
    }
    const double each = since_us(start) * 1000 / rounds;
    if (ns == 0 || each < ns) ns = each;
  }
  MPI_Barrier(node);
  MPI_Win_free(&window);
  MPI_Comm_free(&node);
  return ns;
}

}  // namespace hvd::bench

namespace {

using namespace hvd::bench;

constexpr const char* keys[] = {"4B",
                                "sweep",
                                "1MiB",
                                "8MiB",
                                "64MiB",
                                "64MiB-out",
                                "1MiB-registered",
                                "64MiB-registered",
                                "200x4KB",
                                "160x640KB",
                                "1000",
                                "names",
                                "backend",
                                "woken",
                                "idle",
                                "staging",
                                "flag",
                                "gpu",
                                "recorder"};

int usage(FILE* to, int code) {
  std::fprintf(to,
               "usage: mpirun -np N hvd-bench [--only ROW] [--json] | --check\n"
               "  compares libhvd with plain MPI_Allreduce, both in one run; times are rank 0's\n"
               "  --only    one of:");
  for (const char* key : keys) std::fprintf(to, " %s", key);
  std::fprintf(to,
               "\n  --json    one line, FIGURES and a JSON object, instead of the table\n"
               "  --check   verifies results of all operations and dtypes; exit code 1 when one is wrong\n");
  return code;
}

struct BenchOptions {
  bool check = false, json = false, help = false, wrong = false;
  std::string only;
};

BenchOptions parse(int argc, char** argv) {
  BenchOptions o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--check") {
      o.check = true;
    } else if (word == "--json") {
      o.json = true;
    } else if (word == "--help" || word == "-h") {
      o.help = true;
    } else if (word == "--only" && i + 1 < argc) {
      o.only = argv[++i];
      o.wrong |= std::find(std::begin(keys), std::end(keys), o.only) == std::end(keys);
    } else {
      o.wrong = true;
    }
  }
  return o;
}

/// Returns false if the requested rows cannot be measured here.
bool table(const BenchOptions& o, double private_before) {
  BenchReport report(o.json);
  report.begin(flag_round_trip());
  if (o.only.empty() || o.only == "staging") staging_row(report, private_before);
  engine_rows(report, o.only);
  const bool measured = (!o.only.empty() && o.only != "gpu") || gpu_rows(report, o.only) || o.only.empty();
  allreduce_rows(report, o.only);
  if (o.only.empty() || o.only == "backend") backend_rows(report, o.only);
  report.end(flag_round_trip());
  return measured;
}

}  // namespace

int main(int argc, char** argv) {
  const BenchOptions o = parse(argc, argv);
  if (o.help || o.wrong) return usage(o.help ? stdout : stderr, o.help ? 0 : 2);
  // Serialised if only this thread calls MPI: this is the fastest MPI for the comparison.
  const char* locals = hvd::environment_value("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = hvd::environment_value("OMPI_COMM_WORLD_SIZE");
  const bool one_node = locals && all && std::strcmp(locals, all) == 0 && !hvd::options::value_of("HVD_RANKS_PER_NODE");
  int provided = 0;
  MPI_Init_thread(&argc, &argv, one_node ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Barrier(MPI_COMM_WORLD);
  const double private_before = private_kib();
  need(hvd_init(nullptr), "hvd_init");
  int wrong = 0;
  if (o.check) {
    wrong = check(rank, size);
    if (rank == 0 && wrong == 0) std::printf("hvd-bench: results are right on %d ranks\n", size);
  } else {
    wrong = table(o, private_before) ? 0 : 1;
  }
  need(hvd_shutdown(), "hvd_shutdown");
  MPI_Finalize();
  return wrong ? 1 : 0;
}
