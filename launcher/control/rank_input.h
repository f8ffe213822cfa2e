/// @file rank_input.h — hvdrun's standard input on its way to one rank (--stdin).
///
/// At most window_bytes are sent but unread.  If the rank does not read, the program that writes to hvdrun's standard
/// input blocks.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace hvd::launcher {

class Input {
 public:
  static constexpr std::uint64_t window_bytes = 1u << 20;

  /// @param send  sends a piece to the rank; an empty piece is the end of the input
  Input(int fd, int rank, std::function<void(std::string)> send) : fd_(fd), rank_(rank), send_(std::move(send)) {}

  int rank() const { return rank_; }
  void begin() { begun_ = true; }
  /// The rank has taken @p bytes in all; UINT64_MAX: the rank takes no more.
  void taken(std::uint64_t bytes);
  /// The descriptor to poll for reading.  -1: do not read now.
  int fd() const;
  /// Reads without waiting, and sends what was read.
  void turn();

 private:
  int fd_, rank_;
  std::function<void(std::string)> send_;
  bool begun_ = false, ended_ = false;
  std::uint64_t sent_ = 0, taken_ = 0;
};

}  // namespace hvd::launcher
