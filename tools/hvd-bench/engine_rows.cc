/// The rows about the engine itself: its wake-ups, its work when idle, its memory.
#include <mpi.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "bench.h"
#include "recorder/steps/operation_recorder.h"

namespace hvd::bench {
namespace {

void line(BenchReport& report, const std::string& key, const std::string& title, double number, const char* unit,
          const char* format) {
  char text[200];
  std::snprintf(text, sizeof text, format, number);
  report.add({key, title, {}, text, number, unit});
}

/// 4 B by submit and wait: the last rank's submit wakes the engine's thread, which is still spinning.
void woken_spinning(BenchReport& report) {
  BenchRow row{"woken", "4 B, woken while spinning", {{"hvd", {}}}, {}, 0, {}};
  const std::int64_t one = 1;
  float x = 0;
  for (int i = -100; i < 5000; ++i) {
    const hvd_request q = sum("woken", &one, &x, &x);
    hvd_handle h = 0;
    const auto start = Clock::now();
    need(hvd_submit(&q, &h), "hvd_submit");
    need(hvd_wait(h, -1), "hvd_wait");
    if (i >= 0) row.times[0].second.add(since_us(start));
    need(hvd_release(h), "hvd_release");
  }
  report.add(row);
}

/// 4 B while the engines' threads sleep. No caller drives: it only polls for the operation's end.
void woken_asleep(BenchReport& report) {
  BenchRow row{"woken", "4 B, woken from sleep", {{"hvd", {}}}, {}, 0, {}};
  const std::int64_t one = 1;
  float x = 0;
  for (int i = -5; i < 300; ++i) {
    usleep(3000);
    MPI_Barrier(MPI_COMM_WORLD);
    const hvd_request q = sum("woken", &one, &x, &x);
    hvd_handle h = 0;
    const auto start = Clock::now();
    need(hvd_submit(&q, &h), "hvd_submit");
    for (int done = 0; !done; sched_yield()) need(hvd_poll(h, &done), "hvd_poll");
    if (i >= 0) row.times[0].second.add(since_us(start));
    need(hvd_release(h), "hvd_release");
  }
  report.add(row);
}

/// Context switches of all threads of this process but the calling one; -1 if /proc has no number.
long switches() {
  long total = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (task.path().filename() == std::to_string(::syscall(SYS_gettid))) continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;)
      if (word == "voluntary_ctxt_switches:" || word == "nonvoluntary_ctxt_switches:") {
        long n = 0;
        status >> n;
        total += n;
      }
  }
  return error ? -1 : total;
}

void idle(BenchReport& report) {
  usleep(1000000);  // half a second after the last work the runtime polls its peers for the last time
  MPI_Barrier(MPI_COMM_WORLD);
  const long before = switches();
  timespec a{}, b{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  usleep(3000000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  // MPI's own threads may wake at any time: with only our threads, the number is the runtime's.
  const long mine = switches() - before;
  long most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  line(report, "idle", "idle, 3 s", static_cast<double>(most) / 3, "wake-ups a second",
       "%.2f wake-ups a second of the rank that has most (all threads but the caller's)");
  line(report, "idle", "idle, processor",
       100 * (static_cast<double>(b.tv_sec - a.tv_sec) + 1e-9 * static_cast<double>(b.tv_nsec - a.tv_nsec)) / 3,
       "% of a core", "%.4f %% of a core on rank 0");
}

/// The KiB in a line of /proc/self/FILE; 0 if there is no such line.
double kib_of(const char* file, const std::string& name) {
  std::ifstream in(std::string("/proc/self/") + file);
  for (std::string word; in >> word;)
    if (word == name + ":") {
      double kib = 0;
      in >> kib;
      return kib;
    }
  return 0;
}

/// Returns the MiB that this process has mapped from files whose name contains @p name.
double mapped_mib(const char* name) {
  std::ifstream in("/proc/self/maps");
  double bytes = 0;
  for (std::string text; std::getline(in, text);) {
    unsigned long long from = 0, to = 0;
    if (text.find(name) == std::string::npos || std::sscanf(text.c_str(), "%llx-%llx", &from, &to) != 2) continue;
    bytes += static_cast<double>(to - from);
  }
  return bytes / (1 << 20);
}

/// The runtime's own memory after 256 MiB: the node's segment, shared among its ranks, and private pages.
void staging(BenchReport& report, double private_before) {
  const std::size_t bytes = std::size_t{256} << 20;
  const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
  auto* data = static_cast<float*>(std::malloc(bytes));
  if (!data) stop("memory");
  std::memset(data, 0, bytes);
  const hvd_request q = sum("staging", &elements, data, data);
  for (int i = 0; i < 3; ++i) need(hvd_run(&q), "hvd_run");
  MPI_Barrier(MPI_COMM_WORLD);
  const double own = kib_of("smaps_rollup", "Pss_Anon") - private_before - static_cast<double>(bytes >> 10);
  line(report, "staging", "staging, shared", mapped_mib("/dev/shm/hvd.") / size, "MiB a rank",
       "%.2f MiB a rank: its part of the node's shared segment");
  line(report, "staging", "staging, private", own / 1024, "MiB a rank",
       "%.2f MiB a rank of its own after 256 MiB went through");
  std::free(data);
}

/// The cost of the guard's record in each operation: three calls, each with a clock.
void recording(BenchReport& report) {
  const auto memory = std::make_unique<wire::RecorderMemory>();
  recorder::OperationRecorder record(memory.get());
  std::uint64_t name_at = 0;
  constexpr int operations = 300000;
  const auto start = Clock::now();
  for (int i = 0; i < operations; ++i) {
    const std::uint32_t number = record.submitted({}, "name", name_at, record.now());
    record.began(number, record.now());
    record.ended(number, 0, record.now());
  }
  line(report, "recorder", "an operation's record", 1000 * since_us(start) / operations, "ns",
       "%.0f ns an operation, three readings of the clock among them");
}

}  // namespace

void engine_rows(BenchReport& report, const std::string& only) {
  auto wanted = [&](const char* key) { return only.empty() || only == key; };
  if (wanted("woken")) {
    woken_spinning(report);
    woken_asleep(report);
  }
  if (wanted("idle")) idle(report);
  if (wanted("recorder")) recording(report);
}

double private_kib() { return kib_of("smaps_rollup", "Pss_Anon"); }

void staging_row(BenchReport& report, double private_kib_before) { staging(report, private_kib_before); }

}  // namespace hvd::bench
