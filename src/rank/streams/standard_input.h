/// @file standard_input.h — the rank's standard input, from hvdrun: bytes that wait until the rank takes them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd::rank {

class StandardInput {
 public:
  /// What feed() has taken and the rank never will: it has closed its standard input, or ended.
  static constexpr std::uint64_t closed = UINT64_MAX;

  StandardInput() = default;
  /// @param fd  the write end, non-blocking
  explicit StandardInput(Fd fd) : fd_(std::move(fd)) {}

  /// An empty piece is the end.  hvdrun sends no more than a window's worth that was not taken
  /// (launcher/control/rank_input.h).
  void add(std::string_view piece);
  /// To poll for writing; -1 when nothing waits.
  int fd() const { return pending_.empty() ? -1 : fd_.get(); }
  /// Writes what the rank takes.  Bytes taken so far, or `closed`, when that has changed.
  std::optional<std::uint64_t> step();

 private:
  Fd fd_;
  std::string pending_;
  bool ends_ = false;
  std::uint64_t taken_ = 0;
};

}  // namespace hvd::rank
