#include "rank/diagnostics/recorder_reader.h"

#include <algorithm>
#include <utility>

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
  if (written < steps_read_) return steps;  // a valid count never falls: the rank has overwritten the ring
  if (written - steps_read_ > ring.size) steps_read_ = written - ring.size;
  for (; steps_read_ < written && steps.size() < most_steps_at_once; ++steps_read_)
    if (const auto step = ring.get(steps_read_)) steps.push_back(*step);
  return steps;
}

bool RecorderReader::wants_report() {
  if (asked_for_report_ || !recorder_ || recorder_->report.wanted.load(std::memory_order_relaxed) == 0) return false;
  return asked_for_report_ = true;
}

std::string RecorderReader::name_at(std::uint64_t at) const {
  const wire::OperationNames& names = recorder_->operations.names;
  const std::size_t from = at % names.size, most = std::min(names.longest, names.size - from);
  std::string name;
  for (std::size_t i = 0; i < most; ++i) {
    const char letter = *static_cast<const volatile char*>(&names.text[from + i]);
    if (letter == '\0') break;
    name += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  return at != 0 && names.written.load(std::memory_order_acquire) - at <= names.size ? name : "…";
}

wire::RankOperations RecorderReader::last_operations(std::size_t most, std::int64_t now_ns) const {
  wire::RankOperations r;
  r.now_ns = now_ns;
  if (!recorder_) return r;
  const wire::RecordedOperations& operations = recorder_->operations;
  const std::uint64_t taken = operations.taken.load(std::memory_order_acquire);
  if (taken > INT64_MAX) return r;
  r.submitted = static_cast<std::int64_t>(taken);
  most = std::min<std::size_t>(most, operations.size);
  const auto positive = [](std::int64_t value) { return std::max<std::int64_t>(value, 0); };
  for (std::uint64_t number = taken > most ? taken - most + 1 : 1; number <= taken; ++number) {
    const wire::OperationSlot& slot = operations.slots[number % operations.slots.size()];
    if (slot.turn.load(std::memory_order_acquire) != number) continue;
    wire::OperationRecord o;
    const std::uint64_t sequence = slot.sequence.load(std::memory_order_acquire);
    const std::uint64_t what = slot.what.load(std::memory_order_acquire);
    o.epoch = static_cast<std::int64_t>(sequence >> 48);
    o.sequence = static_cast<std::int64_t>(sequence & (~0ull >> 16));
    o.kind = static_cast<int>(what & 0xff);
    o.dtype = static_cast<int>(what >> 8 & 0xff);
    o.set = static_cast<int>(what >> 16 & 0xffff);
    o.status = static_cast<std::int32_t>(what >> 32);
    o.bytes = positive(slot.bytes.load(std::memory_order_acquire));
    o.submit_ns = positive(slot.submit_ns.load(std::memory_order_acquire));
    o.begin_ns = positive(slot.begin_ns.load(std::memory_order_acquire));
    o.end_ns = positive(slot.end_ns.load(std::memory_order_acquire));
    o.name = name_at(slot.name_at.load(std::memory_order_acquire));
    if (slot.turn.load(std::memory_order_relaxed) == number) r.last.push_back(std::move(o));
  }
  return r;
}

}  // namespace hvd::rank
