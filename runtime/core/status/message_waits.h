/// @file message_waits.h — the messages between two ranks for which a thread of this rank waits.  Pure.
///
/// A program may post a receive long before its message is sent, and train on.  So a message counts as a wait only from
/// the moment at which a thread waits for it.  No other rank knows that moment.  So the rank that waits reports the
/// message, and the coordinator does not.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status/stall_check.h"

namespace hvd::core {

/// One thread.
class MessageWaits {
 public:
  /// A message for which a thread waits now.
  struct AwaitedMessage {
    std::string name;
    std::int64_t handle = 0;  ///< a unique number for each message, since names repeat
    int other = 0;            ///< the other rank, in the world
    bool is_moving = false;   ///< its set carries out a batch: no rank is missing
  };
  /// Call it several times a second while operations are under way.
  void look(const std::vector<AwaitedMessage>& awaited, std::int64_t now_ns);
  void clear() { waits_.clear(); }
  /// True if a thread waited for @p name at the last look(), or shortly before.
  bool has(std::string_view name) const { return waits_.contains(std::string(name)); }
  /// Nanoseconds for which threads have waited for @p name while the other rank was missing; 0: they do not.
  std::int64_t waited_ns(const std::string& name, std::int64_t now_ns) const;
  /// Adds to @p to the waits of at least @p worth_telling_ns.
  void long_waits(std::int64_t now_ns, std::int64_t worth_telling_ns, std::vector<StallReport>& to) const;
  /// The text about messages that have waited for @p warn_ns.  Names a message again after another @p warn_ns.  Empty:
  /// there are none.
  std::string warning(std::int64_t now_ns, std::int64_t warn_ns);

 private:
  struct Wait {
    std::int64_t handle = 0;
    int other = 0;
    std::int64_t since_ns = 0, seen_ns = 0, told_ns = 0;
    bool is_moving = false;
  };
  std::map<std::string, Wait> waits_;
};

}  // namespace hvd::core
