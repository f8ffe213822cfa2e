/// @file links.h — this rank's place among the nodes of a process set, and messages to the others.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd::ops {

/// Which ranks sit where; what the hierarchical operations need of the world.
struct Nodes {
  std::vector<std::vector<int>> ranks;  ///< [nodes][local size] world ranks
  std::vector<int> node_of, local_of;   ///< [size]
  int node = 0, local = 0;              ///< of this rank

  int count() const { return static_cast<int>(ranks.size()); }
  int local_size(int n) const { return static_cast<int>(ranks[static_cast<std::size_t>(n)].size()); }
  int rank(int n, int l) const { return ranks[static_cast<std::size_t>(n)][static_cast<std::size_t>(l)]; }
  /// Ranks of each node that carry a slice: as many as the smallest node has.
  int carriers() const {
    std::size_t least = ranks.front().size();
    for (const auto& r : ranks) least = std::min(least, r.size());
    return static_cast<int>(least);
  }
  /// The local rank of node @p n that takes in what @p rank of another node has.
  int pourer(int rank, int n) const { return local_of[static_cast<std::size_t>(rank)] % local_size(n); }
};

/// Messages under way that belong together; those left when it is destroyed are given up.
class Messages {
 public:
  explicit Messages(transport::Transport& t, transport::Tag tag = transport::Tag::data) : transport_(t), tag_(tag) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() {
    for (transport::Ticket t : tickets_) transport_.abandon(t);
  }
  /// Large ones go in pieces: MPI counts in 32 bits.
  void send(int to, const unsigned char* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += piece)
      tickets_.push_back(transport_.isend(to, tag_, data + at, std::min(piece, bytes - at)));
  }
  void receive(int from, unsigned char* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += piece)
      tickets_.push_back(transport_.irecv(from, tag_, data + at, std::min(piece, bytes - at)));
  }
  /// True when all are done.
  bool done() {
    while (!tickets_.empty() && transport_.test(tickets_.front())) tickets_.pop_front();
    return tickets_.empty();
  }
  std::size_t under_way() const { return tickets_.size(); }

 private:
  static constexpr std::size_t piece = 64u << 20;
  transport::Transport& transport_;
  const transport::Tag tag_;
  std::deque<transport::Ticket> tickets_;
};

}  // namespace hvd::ops
