/// @file operation_record.h — the last operations of ranks: the guards' message, hvdrun's file, and the first
/// difference between ranks.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/collectives/collective_join.h"

namespace hvd::wire {

struct OperationRecord {
  std::int64_t epoch = 0;     ///< number of the world; the first is 0
  std::int64_t sequence = 0;  ///< number in the process set, by order of this rank's submissions; from 0 on
  int set = 0;                ///< hvd_set; 0: all ranks
  int kind = 0, dtype = 0;    ///< hvd_kind, hvd_dtype
  std::int64_t bytes = 0;     ///< of this rank's tensor
  std::string name;
  // CLOCK_MONOTONIC of the rank's host; 0: not yet
  std::int64_t submit_ns = 0, begin_ns = 0;  ///< begin: all ranks have submitted the operation
  std::int64_t end_ns = 0;
  int status = 0;  ///< hvd_status of an operation that has ended

  /// "allreduce grad/layer3 (400 B float32)"
  std::string text() const;
};

struct RankOperations {
  std::string host;         ///< empty: unknown
  std::int64_t now_ns = 0;  ///< time of the guard's look
  std::int64_t submitted = 0;
  std::vector<OperationRecord> last;  ///< in the order of their submission
  std::string gpu{};                  ///< "still computes NAME" and the like; empty: nothing waits on the GPU
  std::optional<RankCollectives> collectives{};  ///< of torch.distributed, where the rank uses it
};
std::string to_json(const RankOperations& operations);
RankOperations rank_operations_from_json(const std::string& text);

using JobOperations = std::map<int, RankOperations>;
/// The file's text.
std::string operations_file(const JobOperations& ranks);
/// Throws Error{usage} when @p text is not the text of such a file.
JobOperations operations_of_file(const std::string& text);

/// Text for the user: a line for each rank, each operation under way, and each of the last operations.
/// @param most  limit of the lines about operations of either kind
std::string operations_text(const JobOperations& ranks, std::size_t most);

/// The first operation in which ranks differ: some have submitted it and others have not, or another one.
struct RankDifference {
  std::vector<std::string> lines;  ///< one to three; empty: the ranks do not differ
  bool branches = false;           ///< ranks have submitted different operations; else some have submitted none yet
};
RankDifference difference_between(const JobOperations& ranks);

/// The ranks' records of torch.distributed.
JobCollectives collectives_of(const JobOperations& ranks);

}  // namespace hvd::wire
