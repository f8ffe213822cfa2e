/// @file standard_input.h — the rank's standard input: bytes from hvdrun that wait until the rank reads them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd::rank {

class StandardInput {
 public:
  /// The value of step() once the rank takes nothing more: it has closed its standard input, or ended.
  static constexpr std::uint64_t closed = UINT64_MAX;

  StandardInput() = default;
  /// @param fd  the write end, non-blocking
  explicit StandardInput(Fd fd) : fd_(std::move(fd)) {}

  /// Adds a piece; an empty piece is the end.  hvdrun sends at most a window of bytes that the rank has not taken
  /// (launcher/control/rank_input.h).
  void add(std::string_view piece);
  /// The descriptor to poll for writing; -1 when nothing waits.
  int fd() const { return pending_.empty() ? -1 : fd_.get(); }
  /// Writes as much as the rank takes.  Returns the bytes taken so far, or `closed`, if that has changed.
  std::optional<std::uint64_t> step();

 private:
  Fd fd_;
  std::string pending_;
  bool ends_ = false;
  std::uint64_t taken_ = 0;
};

}  // namespace hvd::rank
