/// @file operation_recorder.h — records the last operations of this rank, for its guard
/// (wire/shared/recorder_memory.h).
///
/// Always on under hvdrun.  An operation costs a few stores, and each call that submits, begins or ends operations
/// reads the clock once.
#pragma once
#include <cstdint>
#include <mutex>
#include <string_view>

#include "recorder/steps/ticks.h"
#include "wire/shared/recorder_memory.h"

namespace hvd::recorder {

struct SubmittedOperation {
  std::uint64_t sequence = 0;  ///< in its process set
  int set = 0, kind = 0, dtype = 0;
  std::int64_t bytes = 0;
};

/// Thread-safe.  For one operation, submitted() must return before began() and ended() are called.
class OperationRecorder {
 public:
  /// @param memory  of a StepRecorder, which must outlive this object; nullptr: nothing is recorded
  explicit OperationRecorder(wire::RecorderMemory* memory) : operations_(memory ? &memory->operations : nullptr) {}

  /// The time for the `now` of the other functions: CLOCK_MONOTONIC in ns; 0 if nothing is recorded.
  std::int64_t now() const { return operations_ ? trace::monotonic_ns() : 0; }
  /// @param epoch  number of the world, for all operations submitted from now on
  void begin_epoch(std::int64_t epoch) { epoch_ = static_cast<std::uint64_t>(epoch) << 48; }

  /// Returns the operation's number, for began() and ended().  One thread at a time for one name.
  /// @param name_at  position of the recorded name.  The caller keeps it with the name; it begins as 0
  std::uint32_t submitted(const SubmittedOperation& o, std::string_view name, std::uint64_t& name_at,
                          std::int64_t now) {
    if (!operations_) return 0;
    if (name_at == 0 || operations_->names.written.load(std::memory_order_relaxed) - name_at > names_ / 2)
      name_at = keep(name);
    const std::uint64_t number = operations_->taken.fetch_add(1, std::memory_order_relaxed) + 1;
    wire::OperationSlot& slot = at(number);
    slot.turn.store(0, std::memory_order_relaxed);  // first: the stores below are releases
    slot.sequence.store((o.sequence & (~0ull >> 16)) | epoch_, std::memory_order_release);
    slot.submit_ns.store(now, std::memory_order_release);
    slot.begin_ns.store(0, std::memory_order_release);
    slot.end_ns.store(0, std::memory_order_release);
    slot.bytes.store(o.bytes, std::memory_order_release);
    slot.name_at.store(name_at, std::memory_order_release);
    slot.what.store(static_cast<std::uint64_t>(o.kind & 0xff) | static_cast<std::uint64_t>(o.dtype & 0xff) << 8 |
                        static_cast<std::uint64_t>(o.set & 0xffff) << 16,
                    std::memory_order_release);
    slot.turn.store(number, std::memory_order_release);
    return static_cast<std::uint32_t>(number);
  }
  /// All ranks have submitted the operation.
  void began(std::uint32_t number, std::int64_t now) {
    if (wire::OperationSlot* slot = still(number)) slot->begin_ns.store(now, std::memory_order_relaxed);
  }
  /// @param status  hvd_status
  void ended(std::uint32_t number, int status, std::int64_t now) {
    wire::OperationSlot* slot = still(number);
    if (!slot) return;
    if (status != 0)
      slot->what.store((slot->what.load(std::memory_order_relaxed) & 0xffffffff) |
                           static_cast<std::uint64_t>(static_cast<std::uint32_t>(status)) << 32,
                       std::memory_order_relaxed);
    slot->end_ns.store(now, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t names_ = wire::OperationNames::size;

  wire::OperationSlot& at(std::uint64_t number) { return operations_->slots[number % operations_->slots.size()]; }
  /// The slot of an operation; nullptr: a newer operation has taken the slot.
  wire::OperationSlot* still(std::uint32_t number) {
    if (!operations_ || number == 0) return nullptr;
    wire::OperationSlot& slot = at(number);
    return static_cast<std::uint32_t>(slot.turn.load(std::memory_order_relaxed)) == number ? &slot : nullptr;
  }
  /// Records a name, and returns its position.
  std::uint64_t keep(std::string_view name);

  wire::RecordedOperations* operations_;
  std::uint64_t epoch_ = 0;
  std::mutex mutex_;  ///< for writing names
};

}  // namespace hvd::recorder
