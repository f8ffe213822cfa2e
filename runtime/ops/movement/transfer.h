/// @file transfer.h — bytes from ranks to ranks, all lengths known: the pass that gathers, broadcasts and alltoalls
/// share.
///
/// Within a node everything goes through the rings (shm_copy.h).  What is for
/// everybody crosses to another node once: one rank there takes it in where it
/// belongs in its own result, and copies it for its neighbours.  Where only one
/// rank sends, nodes hand it on to one another (spread_tree.h), and where all do
/// and nodes are many (gather_plan.h).  What is for one rank goes straight to it.
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "ops/movement/peer_stream.h"
#include "ops/movement/shm_copy.h"
#include "ops/nodes.h"

namespace hvd::ops {

/// What goes where, as this rank sees it.  Every rank adds the same things in the same order; `from` is read on the
/// sender only, `to` is written on receivers only, nullptr where the other role is played.
class TransferPlan {
 public:
  explicit TransferPlan(const Nodes& nodes)
      : common(nodes.node_of.size()),
        out(nodes.node_of.size()),
        in(nodes.node_of.size()),
        local(static_cast<std::size_t>(nodes.local_size(nodes.node))),
        nodes_(nodes),
        me_(nodes.rank(nodes.node, nodes.local)) {}

  /// A transfer in which @p sender alone adds anything, and that to all.
  void only(int sender) { only_sender = sender; }
  void to_all(int sender, const void* from, void* to, std::size_t bytes) {
    copy_own(sender == me_, from, to, bytes);
    common[index(sender)].add(sender == me_ ? from : to, bytes);
  }
  /// From local rank @p sender to all of this node.
  void to_node(int sender, const void* from, void* to, std::size_t bytes) {
    copy_own(sender == nodes_.local, from, to, bytes);
    local[index(sender)].add(sender == nodes_.local ? from : to, bytes);
  }
  /// From local rank @p sender to local rank @p receiver; known to the whole node.
  void to_neighbour(int sender, int receiver, const void* from, void* to, std::size_t bytes) {
    if (sender == receiver)
      copy_own(sender == nodes_.local, from, to, bytes);
    else
      local[index(sender)].add(sender == nodes_.local ? from : receiver == nodes_.local ? to : nullptr, bytes);
  }
  /// To and from a rank of another node; only the two know of it.
  void send(int receiver, const void* from, std::size_t bytes) {
    any_for_one = true;
    out[index(receiver)].add(from, bytes);
  }
  void receive(int sender, void* to, std::size_t bytes) {
    any_for_one = true;
    in[index(sender)].add(to, bytes);
  }

  int only_sender = -1;
  bool any_for_one = false;             ///< send() or receive() was called: on all ranks, or on none
  std::vector<Pieces> common, out, in;  ///< [size]
  std::vector<Pieces> local;            ///< [local ranks]
  /// Within this rank: `read` goes where `write` lies.  As long as each other.
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
  Transfer(Rings& rings, const Nodes& nodes, transport::Transport& transport, const TransferPlan& load);
  bool step() override;
  bool done() const override { return copy_->done() && busy_.empty() && copied_ == own_.read.bytes(); }

 private:
  struct Arrival {
    const PeerStream* stream;
    std::size_t bytes;  ///< of what the whole node wants
  };
  void spread(const Nodes& nodes, transport::Transport& transport, int sender, const Pieces& pieces);
  void send_directly(const Nodes& nodes, transport::Transport& transport, const TransferPlan& load);
  void pass_on(const Nodes& nodes, transport::Transport& transport, const TransferPlan& load);
  std::size_t arrived();
  bool copy_own();

  std::vector<std::unique_ptr<PeerStream>> streams_to_peers_;
  std::vector<PeerStream*> busy_;  ///< not done yet
  std::vector<Arrival> arrivals_;  ///< what this rank copies for others, in the order in which it does
  std::size_t first_ = 0, arrived_ = 0;
  const TransferPlan::OwnCopy own_;  ///< made while messages are under way
  std::size_t copied_ = 0;
  std::unique_ptr<ShmCopy> copy_;
};

}  // namespace hvd::ops
