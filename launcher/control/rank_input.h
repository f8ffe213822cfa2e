/// @file rank_input.h — hvdrun's standard input on its way to one rank (--stdin).
///
/// No more than a window is under way that the rank has not taken: what feeds hvdrun waits when the rank does.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace hvd::launcher {

class Input {
 public:
  static constexpr std::uint64_t window_bytes = 1u << 20;

  /// @param send  takes a piece; the empty one is the end
  Input(int fd, int rank, std::function<void(std::string)> send) : fd_(fd), rank_(rank), send_(std::move(send)) {}

  int rank() const { return rank_; }
  /// The rank is there.
  void begin() { begun_ = true; }
  /// The rank has taken so many bytes in all; UINT64_MAX: it takes no more.
  void taken(std::uint64_t bytes);
  /// To poll for reading; -1 when nothing is to be read now.
  int fd() const;
  /// Reads what is there and sends it on.
  void turn();

 private:
  int fd_, rank_;
  std::function<void(std::string)> send_;
  bool begun_ = false, ended_ = false;
  std::uint64_t sent_ = 0, taken_ = 0;
};

}  // namespace hvd::launcher
