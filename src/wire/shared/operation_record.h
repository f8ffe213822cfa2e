/// @file operation_record.h — the last operations of ranks: as a guard sends them, as hvdrun keeps them in a file, and
/// where the ranks differ.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/shared/collective_join.h"

namespace hvd::wire {

struct OperationRecord {
  std::int64_t epoch = 0;     ///< which world; the first is 0
  std::int64_t sequence = 0;  ///< from 0 on, of this rank's in the process set
  int set = 0;                ///< hvd_set; 0: all ranks
  int kind = 0, dtype = 0;    ///< hvd_kind, hvd_dtype
  std::int64_t bytes = 0;     ///< of this rank's tensor
  std::string name;
  // CLOCK_MONOTONIC of the rank's host; 0: not yet
  std::int64_t submit_ns = 0, begin_ns = 0;  ///< begin: all ranks have submitted it
  std::int64_t end_ns = 0;
  int status = 0;  ///< hvd_status of one that has ended

  /// "allreduce grad/layer3 (400 B float32)"
  std::string text() const;
};

struct RankOperations {
  std::string host;         ///< where hvdrun knows it
  std::int64_t now_ns = 0;  ///< of the moment at which the guard looked
  std::int64_t submitted = 0;
  std::vector<OperationRecord> last;             ///< in the order of their submission
  std::optional<RankCollectives> collectives{};  ///< of torch.distributed, where the rank uses it
};
std::string to_json(const RankOperations& operations);
RankOperations rank_operations_from_json(const std::string& text);

using JobOperations = std::map<int, RankOperations>;
/// The file's text.
std::string operations_file(const JobOperations& ranks);
/// Throws Error{usage} for a text that is no such file.
JobOperations operations_of_file(const std::string& text);

/// What each rank has under way, and its last operations; @p most of either.  One line each, with a line for each rank.
std::string operations_text(const JobOperations& ranks, std::size_t most);

/// The first operation in which ranks differ: some have submitted it and others have not, or another one.
struct RankDifference {
  std::vector<std::string> lines;  ///< one to three; empty: they do not differ
  bool branches = false;           ///< ranks have submitted different things, rather than some nothing yet
};
RankDifference difference_between(const JobOperations& ranks);

/// What they told of torch.distributed.
JobCollectives collectives_of(const JobOperations& ranks);

}  // namespace hvd::wire
