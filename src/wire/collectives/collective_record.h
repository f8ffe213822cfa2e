/// @file collective_record.h — a rank's record of torch.distributed's collectives, of any backend.  The record has the
/// rank's process groups, its last enqueued collectives, and its present wait.
///
/// Python in the rank sends this record to its guard (src/rank/python/start/hvdrank_collectives.py).  The guard sends
/// the record to hvdrun.  A rank is untrusted, so readers check every number.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd::wire {

/// A process group.  The first one of a rank is torch's default group.
struct CollectiveGroup {
  std::string name;         ///< torch's; the same on all members
  std::string description;  ///< the user's, or empty
  std::vector<int> ranks;   ///< torch's global ranks, sorted; empty: unknown
};

struct CollectiveRecord {
  int group = 0;              ///< index of RankCollectives::groups
  std::int64_t sequence = 0;  ///< torch's number in the group, from 1 on
  std::string kind;           ///< "all_reduce"
  std::string tensors;        ///< "[8] float32"; empty: none
  bool ended = false;
  bool point_to_point = false;
  double seconds = 0;  ///< since it was enqueued
  std::string place;   ///< the user's line that enqueued it: "train.py:8 (step)"; empty: not known
  int root = -1;       ///< the source of broadcast and scatter, the destination of reduce and gather; -1: not known
  bool at_once =
      false;  ///< it runs as soon as it is enqueued; false: perhaps later, as NCCL's do behind a stream's work
};

/// A call of init_process_group() under way.
struct GroupStart {
  int rank = -1, world = -1;  ///< as given; -1: not given
  std::string address;        ///< of the store; empty: another kind of store
  int port = 0;
  double seconds = 0;   ///< since it began
  std::string refused;  ///< why this rank cannot connect to the store; empty: it can, or has not tried
  std::string place{};  ///< the user's line: "train.py:8 (main)"; empty: not known
};

/// The function of torch.distributed in which the main thread is.  NCCL's send() and recv() return at once.  If the
/// main thread stands still then, its open message counts as the call.
struct PresentCall {
  std::string name;    ///< "recv"
  int peer = -1;       ///< send and recv: the other rank
  std::string place;   ///< the user's line
  double seconds = 0;  ///< since this call was first seen
  int group = -1;      ///< index of RankCollectives::groups; -1: the default group, or not known
  int tag = -1;        ///< send and recv; -1: not known
};

struct RankCollectives {
  bool whole = false;     ///< with the collectives that have ended
  int rank = -1;          ///< torch's; -1: no group yet
  std::int64_t pid = 0;   ///< of the process that trains
  std::string torch;      ///< version
  bool recorded = false;  ///< torch keeps records for this backend
  double longest_gap_seconds = 0;
  std::optional<GroupStart> init;
  std::optional<PresentCall> call;
  std::vector<CollectiveGroup> groups;
  std::vector<CollectiveRecord> last;  ///< in the order in which they were enqueued
};
/// Throws Error{usage} if @p text is not such a record.  Control characters become '?'.
RankCollectives rank_collectives_from_json(const std::string& text);
std::string to_json(const RankCollectives& collectives);

/// guard → hvdrun, Type::collective_wait: the rank's wait.  All members empty: the rank does not wait.
struct CollectiveWait {
  std::optional<GroupStart> init;
  std::string what;    ///< "all_reduce"; empty: it waits for no collective
  double seconds = 0;  ///< time of the wait
};
CollectiveWait collective_wait_from_json(const std::string& text);
std::string to_json(const CollectiveWait& wait);

}  // namespace hvd::wire
