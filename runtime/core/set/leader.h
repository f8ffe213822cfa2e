/// @file leader.h — the work of a node's lowest rank: gathers its node's announcements, and publishes commands there.
///
/// The leader on the set's lowest rank also holds the coordinator.  The leaders of several nodes form a tree
/// (negotiate/tree.h).  For each batch a node sends one message up and receives one.  Between two nodes, a small sum
/// needs one trip (offers: negotiate/coordinator.h, leader_offers.cc).  The caller holds the drive lock.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/world.h"
#include "core/batch/node_sums.h"
#include "core/settings/config.h"
#include "core/status/rank_status.h"
#include "core/status/stall_check.h"
#include "memory/node.h"
#include "memory/queue.h"
#include "negotiate/coordinator.h"
#include "negotiate/gather.h"
#include "negotiate/tree.h"
#include "transport/transport.h"

namespace hvd::core {

/// Types of entries in a message down the tree, beside the commands (negotiate/command.h).
inline constexpr std::uint64_t result_entry = 0,  ///< of a tensor of the batch that follows: u32 id, u32 bytes, result
    offer_entry = 64,     ///< u32 bytes of a batch command's body, the body, then the coordinator's parts of its ids
    withdraw_entry = 65;  ///< the offer before ends, unless the node has taken it

/// Answers a leader's questions about its own rank's GPU.
struct OwnGpu {
  std::function<bool()> works;     ///< the GPU has not ended its last work
  std::function<bool()> notifies;  ///< callers asked to be notified of ends, so the runtime cannot see them wait
};

/// Size: it joins the tree, the coordinator and the shared memory of a node, which are classes of their own.
class Leader {
 public:
  /// @p status: of this rank.  @p pending: by id, the operations that this rank has submitted by bit.  @p check: looks
  /// at sums; nullptr: no check.  All must outlive this object.
  Leader(const World& world, const Config& config, transport::Transport& transport, const memory::Node& node,
         const RankStatus& status, const std::vector<Operation*>& pending, OwnGpu gpu, ops::FiniteCheck* check);
  ~Leader();
  bool step();
  /// Wakes at most @p most sleeping members that have new commands to read.  A wake-up costs the waking thread 5 to 30
  /// us.  So a rank that can carry out the commands at once does so before it wakes others.
  void ring_doorbells(int most);
  /// True while work is held back or messages are under way: step() must be called again soon.
  bool busy() const;
  /// Nanoseconds by which the next step() may be late: all held-back work waits behind a GPU.  0: step() is due soon.
  /// No doorbell tells when the wait ends.
  std::int64_t behind_gpu_ns() const;
  /// Tells the other nodes that this rank leaves.
  void announce_departure(const std::string& text);
  /// The body of a message (Tag::up).  By this message a rank that is not a leader notifies its node's leader that the
  /// rank leaves.
  static std::string departure(int rank, const std::string& text);
  void gone(int rank, std::uint32_t code, const std::string& text);
  /// New settings, used from the next batch on.  On the coordinator.
  void tune(const TunedSettings& settings) { coordinator_->tune(settings); }
  /// The tree of leaders; nullptr: one node.
  negotiate::TreeNode* tree() { return tree_.get(); }
  StallCheck& stalls() { return *stalls_; }
  bool coordinates() const { return coordinator_ != nullptr; }

 private:
  struct Send {
    transport::Ticket ticket;
    std::shared_ptr<std::string> body;
  };
  void command(negotiate::Command type, std::string_view body);
  void publish(std::uint32_t type, std::string_view body);
  void ready();
  void add_up(std::string_view batch, bool tells);
  void tell(std::uint64_t type, std::string_view body);
  void offer();
  bool end_offer();
  void hold_offer(std::string_view body, const std::shared_ptr<const std::string>& message);
  void take_offer();
  void take_entry(std::uint64_t type, std::string_view body, const std::shared_ptr<const std::string>& message);
  void plan(std::string_view settings);
  bool write_command(std::uint32_t type, std::string_view body);
  bool flush_commands();
  bool coordinate();
  bool waited_for() const;
  bool report();
  bool receive_up();
  bool receive_down();
  void send(int to, transport::Tag tag, std::shared_ptr<std::string> body);
  void send_down(std::shared_ptr<std::string> body);
  bool flush_sends();

  const World& world_;
  transport::Transport& transport_;
  const memory::Node& node_;
  const OwnGpu gpu_;
  negotiate::Gather gather_;
  memory::CommandWriter writer_;
  std::unique_ptr<negotiate::Coordinator> coordinator_;
  std::deque<std::pair<std::uint32_t, std::string>> backlog_;  ///< commands without room in the ring yet
  std::string down_;                                           ///< commands for the other nodes, since the last send
  std::unique_ptr<negotiate::TreeNode> tree_;                  ///< null on one node
  NodeSums sums_;
  std::size_t most_travelling_;       ///< bytes of tensors that travel with one announcement
  std::vector<std::uint32_t> fresh_;  ///< ids that all members of this node have submitted, since the last step
  bool looks_ = true;                 ///< the last step() looked for messages of other nodes
  std::vector<int> order_of_parts_;   ///< on the coordinator of several nodes
  std::deque<Send> sends_;
  /// The offers of the coordinator, in a set with two nodes.
  struct Offers {
    std::vector<std::uint32_t> own;  ///< ids that only this node has announced, with parts
    bool withdrawn = false;          ///< the open offer is withdrawn
    bool taken = false;              ///< the next batch is known on the other node
    unsigned missed = 0;             ///< grows with each declined offer
    unsigned pause = 0;              ///< number of announcements until the next offer
  } offers_;
  /// On the leader that is not the coordinator's: an offer that this node has not accepted.
  struct HeldOffer {
    std::shared_ptr<const std::string> message;  ///< owns the next two
    std::string_view batch, parts;
    std::vector<std::uint32_t> ids;
  };
  std::optional<HeldOffer> held_;
  std::uint64_t written_ = 0;  ///< commands to this node's members so far
  int next_doorbell_ = 0;      ///< members from here on are still to be rung; 0: no commands were written
  std::unique_ptr<StallCheck> stalls_;
};

}  // namespace hvd::core
