/// @file payload_store.h — the bytes of a .pkl on this host: a sealed memfd, never a file.
#pragma once
#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd::rank {

/// Collects the pieces that hvdrun sends; once sealed, it is this host's copy.
class PayloadStore {
 public:
  /// Throws Error{unavailable}.
  PayloadStore();
  /// Throws Error{unavailable} when memory is full.
  void add(std::string_view piece);
  /// Ends the payload: from now on the bytes cannot be changed.
  void seal();
  std::size_t bytes() const { return bytes_; }
  /// "/proc/PID/fd/N": the same user's processes can open it while this guard lives.
  std::string path() const;
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::size_t bytes_ = 0;
};

/// A memfd that holds @p text, to be read once from its start.
Fd text_in_memory(const char* name, std::string_view text);

}  // namespace hvd::rank
