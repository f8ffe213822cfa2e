#include "rank/diagnostics/recorder_reader.h"

namespace hvd::rank {
namespace {

constexpr std::size_t most_steps_at_once = 256;

}  // namespace

RecorderReader::RecorderReader() : memory_("hvdrank-recorder", wire::recorder_bytes) {
  if (!memory_.data()) return;
  recorder_ = static_cast<wire::RecorderMemory*>(memory_.data());
  recorder_->mark = wire::recorder_mark;
}

std::vector<wire::StepRecord> RecorderReader::next_steps() {
  std::vector<wire::StepRecord> steps;
  if (!recorder_) return steps;
  const auto& ring = recorder_->steps;
  const std::uint64_t written = ring.written();
  if (written < steps_read_) return steps;  // counts never fall: nothing there is to be believed any more
  if (written - steps_read_ > ring.size) steps_read_ = written - ring.size;
  for (; steps_read_ < written && steps.size() < most_steps_at_once; ++steps_read_)
    if (const auto step = ring.get(steps_read_)) steps.push_back(*step);
  return steps;
}

}  // namespace hvd::rank
