/// @file stream_table.h — the streams that frames may be for, and whose.
///
/// The ranks of a world open their streams in the same order, and no number comes twice.  So a smaller number than the
/// newest that is not open is of a stream that has been closed; a larger one is of a stream that this rank is about to
/// open.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace hvd::transport::tcp {

class StreamTable {
 public:
  /// Stream 0, of all ranks, is open.
  StreamTable() { open_[0]; }

  /// @p members  ranks of the world.  Throws Error{internal} where @p stream is no larger than one before it.  @return
  /// streams that frames have come for, and that this rank never opens: it is in none of their sets.
  std::vector<int> open(int stream, std::vector<int> members) {
    if (stream <= newest_) throw Error(Code::internal, "TCP", "stream " + std::to_string(stream) + " comes twice");
    newest_ = stream;
    std::sort(members.begin(), members.end());
    open_[stream] = std::move(members);
    std::vector<int> void_ones(coming_.begin(), coming_.lower_bound(stream));
    coming_.erase(coming_.begin(), coming_.upper_bound(stream));
    return void_ones;
  }
  void close(int stream) { open_.erase(stream); }

  /// Whether frames of @p peer for it are welcome.  False: it has been closed, and they are dropped.  Throws
  /// Error{internal} where no rank of this version sends them.
  bool admits(int peer, int stream) {
    const auto known = open_.find(stream);
    if (known != open_.end()) {
      if (stream != 0 && !std::binary_search(known->second.begin(), known->second.end(), peer))
        throw Error(Code::internal, "TCP", "a frame came for a process set that its sender is not in");
      return true;
    }
    if (stream <= newest_) return false;
    coming_.insert(stream);
    if (coming_.size() > most_coming)
      throw Error(Code::internal, "TCP", "frames came for more process sets than can be under way at once");
    return true;
  }

 private:
  /// All ranks make one set after the other, together (core/set/set_change.h): one at most is ahead of this rank.
  static constexpr std::size_t most_coming = 4;
  std::map<int, std::vector<int>> open_;  ///< members, sorted; of stream 0 none, as it is everybody's
  std::set<int> coming_;
  int newest_ = 0;
};

}  // namespace hvd::transport::tcp
