/// @file bench.h — the common parts of all rows of hvd-bench: this rank, its clock, requests, and the report.
///
/// One thread; MPI is initialised.  StepTimes are rank 0's, in microseconds.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hvd/hvd.h"
#include "stats.h"

namespace hvd::bench {

extern int rank, size;

using Clock = std::chrono::steady_clock;
inline double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Ends all ranks with hvd_last_error().
[[noreturn]] void stop(const char* what);
inline void need(int status, const char* what) {
  if (status != HVD_OK) stop(what);
}

/// A float32 sum of @p elements.  shape: must outlive the request.
hvd_request sum(const char* name, const std::int64_t* elements, const void* in, void* out);

/// Nanoseconds for a flag from rank 0 to rank 1 and back. 0: the ranks do not share memory.  Collective.
double flag_round_trip();

/// One line of the table: us by contender, "hvd" first; or one number.
struct BenchRow {
  std::string key, title;
  std::vector<std::pair<std::string, Stats>> times;
  std::string value;  ///< instead of times: the result as text
  double number = 0;  ///< the result as a number
  std::string unit;   ///< of number
};

/// Prints rows as they come, or keeps them for one JSON object.
class BenchReport {
 public:
  explicit BenchReport(bool json) : json_(json) {}
  void begin(double flag_ns);
  void add(const BenchRow& row);
  void end(double flag_ns);

 private:
  const bool json_;
  std::vector<BenchRow> rows_;  ///< the rows for the JSON object
  double before_ = 0;
};

// The rows.  only: the row's key, or "" for all.
void allreduce_rows(BenchReport& report, const std::string& only);
void backend_rows(BenchReport& report, const std::string& only);
void engine_rows(BenchReport& report, const std::string& only);
/// The processor time of a step's 161 tensors on a GPU. Returns false if there is no GPU.
bool gpu_rows(BenchReport& report, const std::string& only);
/// The runtime's own memory: private_kib() before hvd_init, the row right after it.
double private_kib();
void staging_row(BenchReport& report, double private_kib_before);

}  // namespace hvd::bench
