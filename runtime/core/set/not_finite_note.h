/// @file not_finite_note.h — keeps the first NaN or infinity found in this rank's sums, until a caller takes it.
///
/// A caller that knows whether the training uses a sum decides about the report (hvd_not_finite in hvd.h).
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

namespace hvd::core {

/// Any thread.
class NotFiniteNote {
 public:
  /// False: no caller of this process has ever asked, so the runtime itself reports.
  bool put(const std::string& text) {
    if (!asked_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = text;
    return true;
  }
  /// "": nothing was found since the last call.
  std::string take() {
    asked_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    return std::exchange(text_, {});
  }

 private:
  static inline std::atomic<bool> asked_{false};  ///< of the process, since callers outlive the world
  std::mutex mutex_;
  std::string text_;
};

}  // namespace hvd::core
