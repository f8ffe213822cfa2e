/// @file recorder_memory.h — the recorder: a rank's last steps and last operations.  The guard can read them while the
/// rank is stopped, and after its end.
///
/// Sealed memory, made by the guard and inherited by the rank; the descriptor's number is in HVD_RECORDER_FD.  The
/// rank's libhvd writes.  The guard reads, and trusts no value.  Pages without a write cost nothing.  Header only:
/// libhvd and hvdrank share it.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "wire/shared/step_record.h"

namespace hvd::wire {

inline constexpr const char* recorder_fd_variable = "HVD_RECORDER_FD";
inline constexpr std::uint64_t recorder_mark = 0x6263657264765348;  ///< "HSvdrecb"

/// The last `capacity` records.  Only one thread writes at a time, and only one reads.
template <typename Record, std::size_t capacity>
class RecordRing {
 public:
  static constexpr std::uint64_t size = capacity;

  void put(const Record& record) {
    const std::uint64_t number = written_.load(std::memory_order_relaxed);
    Slot& slot = slots_[number % capacity];
    slot.turn.store(2 * number + 1, std::memory_order_relaxed);
    // A reader that sees one of these words also sees that `turn` is odd.  No fences: ThreadSanitizer does not know
    // them.
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, reinterpret_cast<const char*>(&record) + i * sizeof word, sizeof word);
      slot.content[i].store(word, std::memory_order_release);
    }
    slot.turn.store(2 * number + 2, std::memory_order_release);
    written_.store(number + 1, std::memory_order_release);
  }
  /// The number of records written since the start, including overwritten ones.
  std::uint64_t written() const { return written_.load(std::memory_order_acquire); }
  /// Record @p number, from 0 on; nullopt: overwritten, or half written.
  std::optional<Record> get(std::uint64_t number) const {
    const Slot& slot = slots_[number % capacity];
    if (slot.turn.load(std::memory_order_acquire) != 2 * number + 2) return std::nullopt;
    std::optional<Record> record(std::in_place);
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t word = slot.content[i].load(std::memory_order_acquire);
      std::memcpy(reinterpret_cast<char*>(&*record) + i * sizeof word, &word, sizeof word);
    }
    if (slot.turn.load(std::memory_order_relaxed) != 2 * number + 2) record.reset();
    return record;
  }

 private:
  static_assert(sizeof(Record) % sizeof(std::uint64_t) == 0);
  static constexpr std::size_t words = sizeof(Record) / sizeof(std::uint64_t);
  struct Slot {
    std::atomic<std::uint64_t> turn;  ///< 2 · number + 1 while record `number` is being written, + 2 afterwards
    std::array<std::atomic<std::uint64_t>, words> content;
  };
  alignas(64) std::atomic<std::uint64_t> written_;
  std::array<Slot, capacity> slots_;
};

/// One operation.  One thread writes its submission; then one thread, maybe another, writes its progress.
struct OperationSlot {
  std::atomic<std::uint64_t> turn;      ///< the operation's number, from 1 on; 0 while the slot is being written
  std::atomic<std::uint64_t> sequence;  ///< number in the process set, from 0 on; the upper 16 bits hold the epoch
  std::atomic<std::int64_t> submit_ns, begin_ns, end_ns;  ///< CLOCK_MONOTONIC; 0: not yet
  std::atomic<std::int64_t> bytes;                        ///< of this rank's tensor
  std::atomic<std::uint64_t> name_at;                     ///< position in OperationNames
  std::atomic<std::uint64_t> what;                        ///< kind, dtype: 8 bits each; set: 16; hvd_status: 32
};
static_assert(sizeof(OperationSlot) == 64);

/// Names, zero-terminated, one after another.  New names overwrite the oldest.  A name in use is written again before
/// it would be overwritten.
struct OperationNames {
  static constexpr std::size_t size = 256 << 10, longest = 120;
  std::atomic<std::uint64_t> written;  ///< bytes in all; the name at position n is valid while written - n <= size
  char text[size];
};

struct RecordedOperations {
  static constexpr std::uint64_t size = 4096;
  std::atomic<std::uint64_t> taken;  ///< number of operations since the start
  std::array<OperationSlot, size> slots;
  OperationNames names;
};

/// The job's live report as JSON.  Only for a rank that has asked for it.
struct LiveReportText {
  static constexpr std::size_t most = (32 << 10) - sizeof(std::uint64_t);
  std::uint64_t length;
  std::array<char, most> text;
};

/// Guard to rank: the last order of `hvdrun timeline`.
inline constexpr std::uint32_t trace_on = 1, trace_off = 2;

/// Guard to rank, except `wanted`.
struct LiveReportMemory {
  std::atomic<std::uint32_t> wanted;  ///< by the rank; not 0: hvdrun is to send the report now and then
  RecordRing<LiveReportText, 2> texts;

  /// Ignores a @p text longer than LiveReportText::most.
  void put(std::string_view text) {
    if (text.size() > LiveReportText::most) return;
    LiveReportText record{};
    record.length = text.size();
    std::memcpy(record.text.data(), text.data(), text.size());
    texts.put(record);
  }
  /// The newest report; empty: none has come.
  std::string newest() const {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const std::uint64_t written = texts.written();
      if (written == 0) break;
      if (const auto record = texts.get(written - 1); record && record->length <= LiveReportText::most)
        return {record->text.data(), static_cast<std::size_t>(record->length)};
    }
    return {};
  }
};

/// Zeroed memory with the mark.  Never constructed, because that would touch all of its pages.
struct RecorderMemory {
  std::uint64_t mark;
  RecordRing<StepRecord, 1024> steps;
  alignas(64) RecordedOperations operations;
  alignas(64) LiveReportMemory report;
  alignas(64) std::atomic<std::uint32_t> trace;  ///< trace_on or trace_off; 0: no order yet
  std::atomic<std::int64_t> limit_paused_until;  ///< CLOCK_MONOTONIC in ns: the stall limit ends no operation before
};

inline constexpr std::size_t recorder_bytes = (sizeof(RecorderMemory) + 4095) / 4096 * 4096;

}  // namespace hvd::wire
