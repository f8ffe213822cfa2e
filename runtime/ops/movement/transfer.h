/// @file transfer.h — moves bytes of known lengths between ranks, for allgather, broadcast and alltoall.
///
/// Within a node all data goes through the rings (shm_copy.h).  Data for all ranks crosses to another node once.  One
/// rank there receives the data into its own result, and copies it to the other ranks of its node.  If only one rank
/// sends, nodes pass the data on in a tree (spread_tree.h).  If all ranks send, nodes may pass the data on in rounds
/// (gather_plan.h), where this is faster.  Data for one rank goes straight to that rank.
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "ops/movement/peer_stream.h"
#include "ops/movement/shm_copy.h"
#include "ops/nodes.h"

namespace hvd::ops {

/// The transfers of a pass, with this rank's addresses.  Every rank adds the same transfers in the same order.  `from`
/// is read on the sender only; `to` is written on receivers only.  A rank without that role may give nullptr.
class TransferPlan {
 public:
  explicit TransferPlan(const Nodes& nodes)
      : common(nodes.node_of.size()),
        out(nodes.node_of.size()),
        in(nodes.node_of.size()),
        local(static_cast<std::size_t>(nodes.local_size(nodes.node))),
        nodes_(nodes),
        me_(nodes.rank(nodes.node, nodes.local)) {}

  /// Promises that all transfers are to_all() of this sender.
  void only(int sender) { only_sender = sender; }
  /// Adds a transfer from rank @p sender to all ranks.
  void to_all(int sender, const void* from, void* to, std::size_t bytes) {
    copy_own(sender == me_, from, to, bytes);
    common[index(sender)].add(sender == me_ ? from : to, bytes);
  }
  /// Adds a transfer from local rank @p sender to all ranks of this node.
  void to_node(int sender, const void* from, void* to, std::size_t bytes) {
    copy_own(sender == nodes_.local, from, to, bytes);
    local[index(sender)].add(sender == nodes_.local ? from : to, bytes);
  }
  /// Adds a transfer from local rank @p sender to local rank @p receiver.  All ranks of the node must make this call.
  void to_neighbour(int sender, int receiver, const void* from, void* to, std::size_t bytes) {
    if (sender == receiver)
      copy_own(sender == nodes_.local, from, to, bytes);
    else
      local[index(sender)].add(sender == nodes_.local ? from : receiver == nodes_.local ? to : nullptr, bytes);
  }
  /// From this rank to a rank of another node, and from a rank of another node to this rank.  Only these two ranks add
  /// the transfer: the sender calls send(), the receiver receive().
  void send(int receiver, const void* from, std::size_t bytes) {
    any_for_one = true;
    out[index(receiver)].add(from, bytes);
  }
  void receive(int sender, void* to, std::size_t bytes) {
    any_for_one = true;
    in[index(sender)].add(to, bytes);
  }

  int only_sender = -1;                 ///< see only(); -1: any rank may send
  bool any_for_one = false;             ///< send() or receive() was called: on all ranks, or on none
  std::vector<Pieces> common, out, in;  ///< [size]: to_all() by sender, send() by receiver, receive() by sender
  std::vector<Pieces> local;            ///< [local ranks]: transfers within the node, by sender
  /// Copies from this rank to itself: from `read` to `write`, which have equal lengths.
  struct OwnCopy {
    Pieces read, write;
  };
  OwnCopy own;

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  void copy_own(bool mine, const void* from, void* to, std::size_t bytes) {
    if (!mine || !to || to == from || bytes == 0) return;
    const auto *begin = static_cast<const unsigned char*>(from), *at = static_cast<const unsigned char*>(to);
    if (std::less<>()(at, begin + bytes) && std::less<>()(begin, at + bytes)) {  // they overlap
      std::memmove(to, from, bytes);
      return;
    }
    own.read.add(from, bytes);
    own.write.add(to, bytes);
  }
  const Nodes& nodes_;
  const int me_;
};

class Transfer final : public Stage {
 public:
  /// @p load is read during the call only; its memory must stay valid until done().
  Transfer(Rings& rings, const Nodes& nodes, transport::Transport& transport, const TransferPlan& load);
  bool step() override;
  bool done() const override { return copy_->done() && busy_.empty() && copied_ == own_.read.bytes(); }

 private:
  struct Arrival {
    const PeerStream* stream;
    std::size_t bytes;  ///< the first bytes of the stream, which are for all ranks of the node
  };
  void spread(const Nodes& nodes, transport::Transport& transport, int sender, const Pieces& pieces);
  void send_directly(const Nodes& nodes, transport::Transport& transport, const TransferPlan& load);
  void pass_on(const Nodes& nodes, transport::Transport& transport, const TransferPlan& load);
  std::size_t arrived();
  bool copy_own();

  std::vector<std::unique_ptr<PeerStream>> streams_to_peers_;
  std::vector<PeerStream*> busy_;  ///< streams that are not done
  std::vector<Arrival> arrivals_;  ///< data that this rank passes on, in the order in which it does
  std::size_t first_ = 0, arrived_ = 0;
  const TransferPlan::OwnCopy own_;  ///< copied while messages are under way
  std::size_t copied_ = 0;
  std::unique_ptr<ShmCopy> copy_;
};

}  // namespace hvd::ops
