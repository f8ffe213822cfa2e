/// @file set_table.h — the living process sets of a world.
///
/// All ranks know all sets, members or not.  On all ranks the table changes after the same batch of the global set
/// (set_change.h).  So ids, streams and duplicates are the same on all ranks, without a message.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hvd::core {

class ProcessSet;

/// One living set.  Fixed once it is in the table.
struct SetInfo {
  int id = 0, stream = 0;
  std::vector<int> ranks;           ///< [size] world ranks; rank i of the set is ranks[i]
  int rank = -1;                    ///< this rank's place, -1: not a member
  std::shared_ptr<ProcessSet> set;  ///< null where this rank is not a member
};

/// Any thread.
class SetTable {
 public:
  /// nullptr: no living set has this id.
  std::shared_ptr<const SetInfo> find(int id) const;
  /// The id of a living set with these ranks, in any order; -1: there is none.
  int duplicate(const std::vector<int>& ranks) const;
  std::vector<std::shared_ptr<const SetInfo>> all() const;

  // The caller holds the drive lock.
  /// Describes a new set, with an id and a stream that are the same on all ranks.  Throws Error{unavailable} when all
  /// are taken.
  SetInfo next(std::vector<int> ranks, int my_rank, int streams);
  void insert(SetInfo set);
  std::shared_ptr<const SetInfo> erase(int id);

 private:
  mutable std::mutex mutex_;
  std::map<int, std::shared_ptr<const SetInfo>> living_;
  int last_id_ = 0, last_stream_ = 0;
};

}  // namespace hvd::core
