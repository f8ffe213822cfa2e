/// @file step_record.h — one step of training of one rank: the raw material of the report.
///
/// The rank's libhvd writes the records at the ends of steps.  The guard sends them as Type::steps about once a second,
/// and once more at the rank's end.  The records follow one another, little endian.  All times except end_ns are
/// lengths, so clocks of several hosts need not agree.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hvd::wire {

/// The source of a step's batches.
enum class Loader : std::int16_t { none, other, torch, tensorflow };

/// The ranks of a world count alike: the records with the same epoch and number belong together.
///
/// start/hvdrank_steps.py writes records too, for programs that do not use libhvd.
/// Short steps share a record of about 20 ms.  Such a record is the sum of k steps, where k is a power of two.
/// `number` is that of the last step, a multiple of k.  A record covers the steps since the rank's previous record.
/// Example: record 8 after record 4 covers four steps.  Ranks may have different k, and each rank may change its k.  If
/// the guard could not read for long, the oldest records are lost.  The next record then covers fewer steps than its
/// number tells: see operations and step_ns.
/// The first step of an epoch begins when the program asks a data loader for the first batch.  Without a data loader,
/// it begins with hvd.init().
struct StepRecord {
  std::int64_t number = 0;  ///< from 1 on, in this epoch
  std::int64_t epoch = 0;   ///< of record_epoch()
  std::int64_t end_ns = 0;  ///< CLOCK_MONOTONIC of the rank's host
  std::int64_t step_ns = 0;
  // Parts of step_ns, of the thread that trains.  All other time of the step is the program's own work.
  std::int64_t input_ns = 0;    ///< waited for a data loader's next batch
  std::int64_t waited_ns = 0;   ///< blocked in operations that another rank had not submitted yet
  std::int64_t moved_ns = 0;    ///< blocked in operations that all ranks had submitted
  std::int64_t collect_ns = 0;  ///< Python's garbage collector
  std::int64_t save_ns = 0;     ///< wrote a checkpoint (torch.save and its like)
  // Of the whole process, in this step:
  std::int64_t cpu_ns = 0;  ///< processor time of all threads
  /// The main thread was ready to run and had no core.  Within operations: the main thread, or the engine's thread.
  std::int64_t run_delay_ns = 0;
  std::int64_t read_bytes = 0, written_bytes = 0;  ///< from and to storage
  std::int64_t operation_bytes = 0;                ///< tensors of this rank's operations
  std::int64_t resident_bytes = 0;                 ///< memory at the end of the step; 0: not measured
  /// Time in which the cgroup's limit of processor time throttled the rank's threads since the last measurement, summed
  /// over the threads.
  std::int64_t throttled_ns = 0;
  std::int64_t made_ns = 0;  ///< time in which other processes made batches, as a mean over the workers of a loader
  /// Sent to link_peer over a network since the previous record with this peer.  Peers take turns.
  std::int64_t link_bytes = 0, link_busy_ns = 0;
  std::int64_t link_round_trip_ns = 0;  ///< shortest measured round trip; 0: unknown
  std::int64_t compile_ns = 0;          ///< a part of step_ns: compiled the program
  /// The part of run_delay_ns within operations.  waited_ns and moved_ns are without it.
  std::int64_t operation_delay_ns = 0;
  /// The GPU waited for results of operations.  Overlaps the other parts.  Belongs to this step or to one shortly
  /// before.
  std::int64_t device_wait_ns = 0;
  std::int64_t longest_ns = 0;  ///< the record's longest step
  std::int32_t operations = 0;
  std::int32_t major_faults = 0;  ///< pages that had to be read from storage
  std::int32_t link_peer = -1;    ///< a rank of this epoch; -1: no peer in this record
  std::int16_t core = -1;         ///< of the main thread at the end of the step, by the host's numbers
  Loader loader = Loader::none;   ///< the source of its batches
};
static_assert(sizeof(StepRecord) == 208 && std::is_trivially_copyable_v<StepRecord>);

/// A program may report its first step after some rounds have already counted as steps.  The steps then count from 1
/// again, in an epoch of their own.  The ranks may have seen different numbers of rounds.
/// @param world  its number; the first is 0, and in elastic jobs later ones have larger numbers
constexpr std::int64_t record_epoch(std::int64_t world, bool told_of_steps) { return 2 * world + told_of_steps; }
/// True if the program has reported the steps of this epoch.  False: the steps are rounds, or start/hvdrank_steps.py
/// wrote them.
constexpr bool is_told(std::int64_t epoch) { return epoch % 2 != 0; }

std::string encode(const std::vector<StepRecord>& steps);
/// Corrects impossible values (a negative length, a part longer than its step), because the rank's process could have
/// written anything.  Throws Error{usage} when @p bytes is no multiple of a record's size.
std::vector<StepRecord> decode_step_records(std::string_view bytes);

}  // namespace hvd::wire
