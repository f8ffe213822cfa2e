#include "wire/channel/unconfirmed_frames.h"

namespace hvd::wire {

void UnconfirmedFrames::add(const Frame& frame) {
  bytes_ += frame.body.size();
  kept_.push_back(frame);
  ++sent_;
}

bool UnconfirmedFrames::confirm(std::uint64_t count) {
  if (count < first_ || count - first_ > sent_) return false;
  for (; first_ < count; ++first_, --sent_) {
    bytes_ -= kept_.front().body.size();
    kept_.pop_front();
  }
  return true;
}

bool UnconfirmedFrames::resume(std::uint64_t count) {
  if (!confirm(count)) return false;
  sent_ = 0;
  return true;
}

}  // namespace hvd::wire
