/// @file leader.h — the work of a node's lowest rank: gather what its node announces, publish commands in its node.
///
/// On the set's lowest rank it also holds the coordinator.  The leaders of several
/// nodes form a tree (negotiate/tree.h): one message up and one down a node and
/// batch.  Drive side only.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/world.h"
#include "core/config.h"
#include "core/rank_status.h"
#include "memory/node.h"
#include "memory/queue.h"
#include "negotiate/coordinator.h"
#include "negotiate/gather.h"
#include "negotiate/tree.h"
#include "transport/transport.h"
#include "wire/stalls.h"

namespace hvd::core {

/// An operation that only some ranks of its set have submitted.
struct StallReport {
  std::string name;
  std::int64_t waited_ns = 0;
  negotiate::RankSet missing;  ///< as the world numbers them
  int size = 0;                ///< of the set
};

/// For hvdrun: what waits for the same ranks is one, and there are at most wire::most_stalls of them.
std::vector<wire::Stall> merge_stalls(std::vector<StallReport> reports);

class Leader {
 public:
  /// @p status  of this rank; must outlive this object
  Leader(const World& world, const Config& config, transport::Transport& transport, const memory::Node& node,
         const RankStatus& status);
  ~Leader();
  bool step();
  /// Wakes at most @p most members that sleep, for the commands written since.  A wake-up costs the waker 5 to 30 us:
  /// who can carry the commands out at once does that first.
  void ring_doorbells(int most);
  /// Something is held back or on its way: step() must be called again soon.
  bool busy() const;
  /// This rank leaves: the other nodes are told.
  void announce_departure(const std::string& text);
  /// The same from a rank that leads nothing: the body of a message to its node's leader, Tag::up.
  static std::string departure(int rank, const std::string& text);
  void gone(int rank, std::uint32_t code, const std::string& text);
  /// The stall check.  Leaders tell upwards what waits in their nodes, and for whom; the coordinator warns on stderr
  /// about operations that only some ranks have submitted, and ends the world when they have waited too long. True
  /// while there are any: ask again soon.
  bool check_stalls(std::int64_t now_ns);
  /// What hvdrun is to hear of now: waits that are long beside the steps so far.  On the coordinator.
  void long_waits(std::int64_t now_ns, std::vector<StallReport>& to) const;
  bool coordinates() const { return coordinator_ != nullptr; }

 private:
  struct Send {
    transport::Ticket ticket;
    std::shared_ptr<std::string> body;
  };
  void command(negotiate::Command type, std::string_view body);
  void publish(std::uint32_t type, std::string_view body);
  bool write_command(std::uint32_t type, std::string_view body);
  bool flush_commands();
  bool coordinate();
  bool report();
  bool receive_up();
  bool receive_down();
  void send(int to, transport::Tag tag, std::shared_ptr<std::string> body);
  void send_down(std::shared_ptr<std::string> body);
  bool flush_sends();

  struct Stall {
    std::int64_t since_ns = 0, told_ns = 0;
    std::uint32_t id = negotiate::no_slot;
    negotiate::RankSet here;  ///< ranks that have submitted it
    bool seen = false;
  };
  void collect_stalls(std::int64_t now_ns);
  void tell_stalls(std::int64_t now_ns);
  bool warn_of_stalls(std::int64_t now_ns);
  void refuse_crossed(std::int64_t now_ns);
  void settled(negotiate::Command type, std::string_view body);
  std::int64_t worth_telling_ns() const;
  const std::string* name(std::uint32_t id) const;

  const World& world_;
  const StallLimits stall_limits_;
  transport::Transport& transport_;
  const memory::Node& node_;
  const RankStatus& status_;
  negotiate::Gather gather_;
  memory::CommandWriter writer_;
  std::unique_ptr<negotiate::Coordinator> coordinator_;
  std::deque<std::pair<std::uint32_t, std::string>> backlog_;  ///< commands without room in the ring yet
  std::string down_;                                           ///< commands for the other nodes, since the last send
  std::unique_ptr<negotiate::TreeNode> tree_;                  ///< null on one node
  std::deque<Send> sends_;
  int next_doorbell_ = 0;  ///< members from here on have not been rung for what was written; 0: nothing was written
  std::unordered_map<std::string, Stall> stalls_;
  struct StallNotice {
    std::int64_t at_ns;
    negotiate::RankSet here;
  };
  std::unordered_map<std::string, std::vector<StallNotice>>
      notices_;  ///< by other leaders, each about its part of the tree
};

}  // namespace hvd::core
