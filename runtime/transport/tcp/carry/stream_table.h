/// @file stream_table.h — the open streams, and the ranks that may send frames for each stream.
///
/// The ranks of a world open their streams in ascending order, and use each number once.  So a stream that is not open
/// and has a smaller number than the newest stream is closed.  A stream with a larger number is new: this rank has not
/// opened the stream yet.
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
  /// Stream 0 is open for all ranks.
  StreamTable() { open_[0]; }

  /// Opens a stream.  @p members: ranks of the world that may send frames.  Throws Error{internal} unless @p stream is
  /// larger than all earlier streams.  @return smaller streams for which frames have arrived.  This rank never opens
  /// these streams, because it is not a member of their process sets
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

  /// True if this rank accepts frames of @p stream from @p peer.  False: the stream is closed, and the caller must drop
  /// the frames.  Throws Error{internal} if no rank of this version sends these frames.
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
  /// Maximum number of new streams that this rank has not opened.  All ranks create process sets together, one set at a
  /// time (core/set/set_change.h).  So other ranks are at most one set ahead of this rank.
  static constexpr std::size_t most_coming = 4;
  std::map<int, std::vector<int>> open_;  ///< sorted members by stream; empty for stream 0, which all ranks may use
  std::set<int> coming_;                  ///< new streams that this rank has not opened
  int newest_ = 0;
};

}  // namespace hvd::transport::tcp
