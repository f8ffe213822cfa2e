/// @file told_collectives.h — one rank's report on its collectives, in words.  Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "wire/collectives/collective_join.h"

namespace hvd::wire {

using Ranks = std::vector<int>;

/// hvdrun's rank for a rank of torch.
class RankNumbers {
 public:
  explicit RankNumbers(const JobCollectives& job);
  /// Returns hvdrun's rank.  For a rank that has not answered, returns the same number, or an unused one.
  int of(int torch_rank) const;

 private:
  std::map<int, int> known_;
};

/// " at train.py:8"; empty: no place is known.
std::string at(const std::string& place);

/// " ([8] float32)"; empty: the record has no tensors.
std::string tensors_text(const CollectiveRecord& r);

/// "the default group", "group tensor_parallel", "the group of ranks 0-3", "group 3".
/// @param has_twin  another group has the same ranks; then the text has torch's name too: "group 3 of ranks 0-3"
std::string group_text(const CollectiveGroup& group, bool is_default, bool has_twin);

/// True if another of these groups, except the default group, has the same ranks as the group at @p index.
bool has_twin(const std::vector<CollectiveGroup>& groups, std::size_t index);

/// The rank's open collective that was enqueued first; null: none.  A message may be posted long in advance, so an open
/// one shows no wait.
const CollectiveRecord* first_open(const RankCollectives& told);

/// True if the rank has an open collective, or its main thread is in a call.
bool waits(const RankCollectives& told);

/// The main thread's line; empty: not known.  Records have no lines of their own; the last open one has this line.
std::string present_place(const RankCollectives& told);

/// The main thread's call, which must be there: "recv from rank 1", "all_reduce of group tensor_parallel", "barrier".
std::string call_text(const RankCollectives& told);

/// "all_reduce 4 of the default group ([8] float32) at train.py:8".
std::string open_text(const RankCollectives& told, const CollectiveRecord& r);

/// The present actions of ranks for which others wait.  One line for each text, three at most; ranks with the same text
/// share it.
/// @param recorded  the records have the missing collective; otherwise only a rank that waits elsewhere has a line
std::vector<std::string> details_of(const Ranks& missing, const JobCollectives& job, bool recorded);

}  // namespace hvd::wire
