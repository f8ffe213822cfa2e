/// @file payload_delivery.h — brings a job's pickle to its ranks.
///
/// Ranks of this machine read hvdrun's copy.  Each other host gets one copy.  The host's rank with local rank 0
/// receives the copy in pieces.  The host's other ranks wait until they can read that copy.  At most eight copies
/// travel at once, because the channel's queues keep them in memory.
#pragma once
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wire/channel/channel.h"
#include "wire/manifest/manifest.h"

namespace hvd::launcher {

/// Pure: the caller sends.
class PayloadDelivery {
 public:
  /// @param local_path  where this machine's ranks can read the payload
  PayloadDelivery(std::string bytes, std::string local_path)
      : bytes_(std::move(bytes)), local_path_(std::move(local_path)) {}

  /// Ranks from @p first on each get their own copy, because the guard with their host's copy may be gone.
  void copy_for_each_from(int first) { first_with_own_copy_ = first; }
  /// Tells a rank where its payload is, or that a copy follows.  False: the rank waits for its host's copy.
  bool complete(wire::RankManifest& manifest, bool local) const;

  /// Starts to send a copy to @p rank, from the first byte.
  void begin(int rank) { sent_bytes_[rank] = 0; }
  /// True from begin() until the last piece of the copy has been taken.
  bool is_under_way(int rank) const { return sent_bytes_.contains(rank); }
  /// The next piece of the rank's copy; the empty piece ends it.  Nothing: too many other copies are on their way.
  std::optional<wire::Frame> next_piece(int rank);
  /// The channel has taken that piece.
  void has_sent(int rank, const wire::Frame& piece);
  /// The copy of @p host can be read at @p path.
  void arrived(int rank, const std::string& host, const std::string& path);
  /// The rank needs no copy any more.
  void forget(int rank);
  /// Ranks whose copies have not begun.
  std::vector<int> waiting() const;

 private:
  static constexpr std::size_t most_on_their_way = 8;

  std::string bytes_, local_path_;
  std::map<int, std::size_t> sent_bytes_;         ///< by rank, until the copy is sent
  std::set<int> on_their_way_;                    ///< ranks whose copy is being sent
  std::map<std::string, std::string> host_path_;  ///< where each host's copy is
  int first_with_own_copy_ = std::numeric_limits<int>::max();
};

}  // namespace hvd::launcher
