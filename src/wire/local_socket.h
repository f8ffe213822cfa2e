/// @file local_socket.h — one end of a unix socket that carries frames, for local_channel.cc.
///
/// Frame: u32 body length, u16 type, u16 zero, body (as in link.h).  Nothing here blocks but the destructor.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "channel.h"

namespace hvd::wire {

/// Both directions of one connection.  Its descriptor is watched by @p epoll for as long as the other end is there, so
/// that a poll() of that one wakes for what can be read, and for room where a frame waits for it.
class LocalSocket {
 public:
  /// @p id  what epoll says of this socket's events
  LocalSocket(Fd socket, int epoll, std::uint64_t id);
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

  /// False while an earlier frame is not in the kernel's buffer: this one was not taken.
  bool send(const Frame& frame);
  /// Bytes before all frames: the key.
  void send_key(const std::string& key) { write(key); }
  /// Writes what the kernel takes.
  void flush();
  /// Reads once; what came is given by take().
  void read();
  /// The first @p bytes of what came, or nothing before so many are there.
  std::optional<std::string> take_key(std::size_t bytes);
  /// The next frame that is there as a whole.
  std::optional<Frame> take();
  bool has_frame() const;
  /// Waits until all is written or nobody is there to read it, until @p limit at most.
  void linger(std::chrono::steady_clock::time_point limit);

  /// Nothing will come any more: the other end is closed, or said what no frame is.
  bool ended() const { return ended_; }

 private:
  void write(std::string_view bytes);
  void watch(std::uint32_t events);
  void end();

  Fd socket_;
  int epoll_;
  std::uint64_t id_;
  std::uint32_t watched_ = 0;
  std::string out_, in_;
  std::size_t written_ = 0, taken_ = 0;
  bool deaf_ = false;  ///< the other end reads no more
  bool ended_ = false;
};

}  // namespace hvd::wire
