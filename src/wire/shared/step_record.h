/// @file step_record.h — what one rank did in one step of training: the raw material of the report.
///
/// The rank's libhvd writes one at the end of each step; the guard passes them on about once a second and once more
/// at the rank's end, as Type::steps: the records one after another, little endian.  All times are lengths, so clocks
/// of several hosts need not agree.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hvd::wire {

/// Where batches come from.
enum class Loader : std::int16_t { none, other, torch, tensorflow };

/// The ranks of a world count alike: the records with the same epoch and number belong together.
///
/// A program with short steps writes a record of about 20 ms: the sum of k steps, k a power of two, `number` that of
/// the last, a multiple of k.  So a record is of the steps after its rank's last one (number 8 after 4: of four); ranks
/// may have different k, and each chooses another one now and then.  After a gap (the guard could not read for long,
/// and the oldest were lost) the next record covers less than its number tells: see operations, step_ns. The first step
/// of an epoch begins with the first batch asked of a data loader, else with hvd.init().
struct StepRecord {
  std::int64_t number = 0;  ///< from 1 on, in this epoch
  std::int64_t epoch = 0;   ///< which world (elastic jobs have several, with larger numbers); the first is 0
  std::int64_t end_ns = 0;  ///< CLOCK_MONOTONIC of the rank's host
  std::int64_t step_ns = 0;
  // Parts of step_ns, of the thread that trains.  What they leave is the program's own work.
  std::int64_t input_ns = 0;    ///< asked a data loader for the next batch
  std::int64_t waited_ns = 0;   ///< blocked in operations that another rank had not submitted yet
  std::int64_t moved_ns = 0;    ///< blocked in operations that all ranks had submitted: the data was under way
  std::int64_t collect_ns = 0;  ///< Python's garbage collector
  std::int64_t save_ns = 0;     ///< wrote a checkpoint (torch.save and its like)
  // Of the whole process, in this step:
  std::int64_t cpu_ns = 0;                         ///< processor time of all threads
  std::int64_t run_delay_ns = 0;                   ///< the main thread was ready to run and had no core
  std::int64_t read_bytes = 0, written_bytes = 0;  ///< from and to storage
  std::int64_t operation_bytes = 0;                ///< tensors of this rank's operations
  std::int64_t resident_bytes = 0;                 ///< memory, at the end of the step; 0: not looked at
  /// Threads of its cgroup were held by the group's limit of processor time, the sum of them: found out now, of the
  /// time since it was looked at before.
  std::int64_t throttled_ns = 0;
  std::int64_t made_ns = 0;  ///< batches were made by other processes; by w workers of a loader, a w-th of their sum
  /// What this rank has sent to link_peer over a network since it was told of that link before: each has its turn.
  std::int64_t link_bytes = 0, link_busy_ns = 0;
  std::int32_t operations = 0;
  std::int32_t major_faults = 0;  ///< pages that had to be read from storage
  std::int32_t link_peer = -1;    ///< a rank of this epoch; -1: nothing
  std::int16_t core = -1;         ///< on which the main thread was at its end, by the host's numbers
  Loader loader = Loader::none;   ///< of its batches
};
static_assert(sizeof(StepRecord) == 168 && std::is_trivially_copyable_v<StepRecord>);

std::string encode(const std::vector<StepRecord>& steps);
/// What makes no sense (a negative length, a part longer than its step) is set right: the rank's own process could
/// have written anything.  Throws Error{usage} when the length does not fit.
std::vector<StepRecord> decode_step_records(std::string_view bytes);

}  // namespace hvd::wire
