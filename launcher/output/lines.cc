#include "launcher/output/lines.h"

#include <utility>

namespace hvd::launcher {

void Lines::progress(Clock::time_point now, const Take& take) {
  if (line_.empty()) return;
  if (!in_place_ && now - last_progress_ >= progress_interval) {
    last_progress_ = now;
    skipped_.clear();
    take(line_);
  } else {
    skipped_ = line_;
  }
  line_.clear();
}

void Lines::add(std::string_view bytes, Clock::time_point now, const Take& take) {
  while (!bytes.empty()) {
    if (after_return_) {
      after_return_ = false;
      if (bytes[0] != '\n') progress(now, take);
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    while (line_.size() > most_line_bytes) {
      take(std::string_view(line_).substr(0, most_line_bytes));
      line_.erase(0, most_line_bytes);
      was_cut_ = true;
    }
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\r') {
      after_return_ = true;
    } else {
      if (line_.empty() && !skipped_.empty()) line_.swap(skipped_);  // "…99%\r100%\r\n": the last state is passed on
      skipped_.clear();
      take(line_);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void Lines::end(const Take& take) {
  if (line_.empty()) line_.swap(skipped_);
  skipped_.clear();
  after_return_ = false;
  if (!line_.empty()) take(std::exchange(line_, {}));
}

}  // namespace hvd::launcher
