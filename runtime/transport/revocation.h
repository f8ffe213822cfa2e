/// @file revocation.h — a flag that ends a world after one of its ranks has died.
///
/// hvdrun reports the death to the other ranks (wire/messages/meeting_message.h).  RevocationWatch then raises the flag
/// (api/revocation_watch.h).  Any thread.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

namespace hvd::transport {

class Revocation {
 public:
  /// Only the first call sets the reason.
  void raise(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) why_ = why;
    raised_.store(true, std::memory_order_seq_cst);
  }
  bool raised() const noexcept { return raised_.load(std::memory_order_seq_cst); }
  std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::string why_;
};

}  // namespace hvd::transport
