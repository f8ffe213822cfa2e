/// @file message_set.h — a set of messages that is complete when all of them are.
#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>

#include "transport/transport.h"

namespace hvd::ops {

/// Sends and receives under way.  The destructor abandons the unfinished ones (Transport::abandon()).
class MessageSet {
 public:
  explicit MessageSet(transport::Transport& t, transport::Tag tag = transport::Tag::data) : transport_(t), tag_(tag) {}
  MessageSet(const MessageSet&) = delete;
  MessageSet& operator=(const MessageSet&) = delete;
  ~MessageSet() {
    for (transport::Ticket t : tickets_) transport_.abandon(t);
  }
  /// The memory must stay valid until done() returns true.  Both functions cut a message at each 64 MiB, because MPI
  /// counts in 32 bits.
  void send(int to, const unsigned char* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += piece)
      tickets_.push_back(transport_.isend(to, tag_, data + at, std::min(piece, bytes - at)));
  }
  void receive(int from, unsigned char* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += piece)
      tickets_.push_back(transport_.irecv(from, tag_, data + at, std::min(piece, bytes - at)));
  }
  /// True if all messages are complete.
  bool done() {
    while (!tickets_.empty() && transport_.test(tickets_.front())) tickets_.pop_front();
    return tickets_.empty();
  }

 private:
  static constexpr std::size_t piece = 64u << 20;
  transport::Transport& transport_;
  const transport::Tag tag_;
  std::deque<transport::Ticket> tickets_;
};

}  // namespace hvd::ops
