/// @file queue.h — the two byte queues in a node's shared memory: records up, commands down.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "memory/node.h"

namespace hvd::memory {

/// The error for impossible counters of a queue: a process of the job has overwritten the words of another process.
inline Error broken_queue() {
  return Error(Code::internal, "the memory that the ranks of a host share", "a queue's length cannot be right");
}

/// Copies between a buffer and a ring of @p size bytes at stream position @p at.
inline void ring_write(unsigned char* ring, std::size_t size, std::uint64_t at, const void* data, std::size_t bytes) {
  const std::size_t begin = at % size, first = std::min(bytes, size - begin);
  std::memcpy(ring + begin, data, first);
  std::memcpy(ring, static_cast<const unsigned char*>(data) + first, bytes - first);
}
inline void ring_read(const unsigned char* ring, std::size_t size, std::uint64_t at, void* data, std::size_t bytes) {
  const std::size_t begin = at % size, first = std::min(bytes, size - begin);
  std::memcpy(data, ring + begin, first);
  std::memcpy(static_cast<unsigned char*>(data) + first, ring, bytes - first);
}

/// Writes the beginning of @p bytes to this rank's record queue, as much as the queue has room for.  Returns the number
/// of bytes written.
inline std::size_t post_records(const Node& node, std::string_view bytes) {
  auto& posted = node.board(node.me).posted;
  const std::uint64_t at = posted.load(std::memory_order_relaxed);
  const std::size_t size = node.geometry.record_bytes;
  const std::uint64_t waiting = at - node.taken(node.me).load(std::memory_order_acquire);
  if (waiting > size) throw broken_queue();
  const std::size_t room = size - waiting;
  const std::size_t n = std::min(room, bytes.size());
  if (n == 0) return 0;
  ring_write(node.records(node.me), size, at, bytes.data(), n);
  posted.store(at + n, std::memory_order_seq_cst);
  return n;
}

/// Moves all bytes that rank @p r has posted to the end of @p into.  Returns false if there were none.
inline bool take_records(const Node& node, int r, std::string& into) {
  auto& taken = node.taken(r);
  const std::uint64_t at = taken.load(std::memory_order_relaxed);
  const std::uint64_t end = node.board(r).posted.load(std::memory_order_acquire);
  if (at == end) return false;
  if (end - at > node.geometry.record_bytes) throw broken_queue();
  const std::size_t old = into.size();
  into.resize(old + (end - at));
  ring_read(node.records(r), node.geometry.record_bytes, at, into.data() + old, end - at);
  taken.store(end, std::memory_order_seq_cst);
  return true;
}

/// The header of a command in the ring.  A command is this header, then the body, padded to 8 bytes.
/// The writer first sets the next header to 0, and writes this header last; it is never 0.  So a reader polls one word,
/// and finds the command's first words on the same cache line.
struct CommandHeader {
  std::uint32_t bytes;  ///< of the body
  std::uint32_t type;   ///< negotiate/command.h, never 0
};
static_assert(sizeof(CommandHeader) == 8);

/// The node leader's end of the command ring.
class CommandWriter {
 public:
  explicit CommandWriter(const Node& node) : node_(node) {}
  /// The largest body that fits, in bytes.
  std::size_t largest() const { return node_.geometry.command_bytes / 2 - 64; }
  /// Returns false if a slow reader leaves no room: the caller tries again later.
  bool write(std::uint32_t type, std::string_view body) {
    const std::size_t size = node_.geometry.command_bytes;
    const std::size_t need = 8 + (body.size() + 7) / 8 * 8;
    if (at_ + need + 8 - slowest_ > size) {
      slowest_ = at_;
      for (int r = 0; r < node_.ranks; ++r)
        slowest_ = std::min(slowest_, node_.presence(r).read.load(std::memory_order_acquire));
      if (at_ + need + 8 - slowest_ > size) return false;
    }
    ring_write(node_.commands(), size, at_ + 8, body.data(), body.size());
    header(at_ + need).store(0, std::memory_order_relaxed);
    header(at_).store(std::uint64_t{type} << 32 | body.size(), std::memory_order_seq_cst);
    at_ += need;
    return true;
  }

 private:
  std::atomic<std::uint64_t>& header(std::uint64_t at) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(node_.commands() + at % node_.geometry.command_bytes);
  }
  const Node& node_;
  std::uint64_t at_ = 0, slowest_ = 0;
};

/// A member's end of the command ring.
class CommandReader {
 public:
  explicit CommandReader(const Node& node) : node_(node) {}
  bool waiting() const { return header() != 0; }
  /// Returns the next command's type, and its body in @p body; 0: no command waits.
  std::uint32_t read(std::string& body) {
    const std::uint64_t h = header();
    if (h == 0) return 0;
    const auto bytes = static_cast<std::size_t>(h & 0xffffffffu);
    if (bytes > node_.geometry.command_bytes / 2) throw broken_queue();
    body.resize(bytes);
    ring_read(node_.commands(), node_.geometry.command_bytes, at_ + 8, body.data(), bytes);
    at_ += 8 + (bytes + 7) / 8 * 8;
    node_.presence(node_.me).read.store(at_, std::memory_order_release);
    return static_cast<std::uint32_t>(h >> 32);
  }

 private:
  std::uint64_t header() const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(node_.commands() + at_ % node_.geometry.command_bytes)
        ->load(std::memory_order_seq_cst);
  }
  const Node& node_;
  std::uint64_t at_ = 0;
};

}  // namespace hvd::memory
