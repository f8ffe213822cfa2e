#include "transport/tcp/stream/kept_frames.h"

#include <utility>

#include "base/error.h"

namespace hvd::transport::tcp {

void KeptFrames::add(OutFrame frame, std::uint64_t end) {
  frame.ticket = 0;
  bytes_ += frame.whole();
  kept_.push_back({std::move(frame), end});
}

void KeptFrames::drop(std::uint64_t acknowledged) {
  for (; !kept_.empty() && kept_.front().end <= acknowledged; kept_.pop_front()) bytes_ -= kept_.front().frame.whole();
}

void KeptFrames::give_back(std::deque<OutFrame>& out, std::uint64_t sent, std::uint64_t received) {
  std::uint64_t begin = sent;  // bytes of all frames before out.front()
  if (!out.empty()) begin -= out.front().whole() - out.front().left;
  for (; !kept_.empty(); kept_.pop_back()) {
    begin -= kept_.back().frame.whole();
    out.push_front(std::move(kept_.back().frame));
  }
  bytes_ = 0;
  if (received > sent || received < begin)
    throw Error(Code::internal, "TCP",
                received > sent ? "a rank has received more bytes than were sent"
                                : "a rank lacks bytes that its kernel has acknowledged");
  for (; !out.empty() && begin + out.front().whole() <= received; out.pop_front()) begin += out.front().whole();
  std::uint64_t had = received - begin;
  for (OutFrame& frame : out) frame.left = frame.whole() - std::exchange(had, 0);
}

}  // namespace hvd::transport::tcp
