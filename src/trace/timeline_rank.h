/// @file timeline_rank.h — the state of one rank of a timeline: its rows, and its batches under way.
///
/// Timeline::Rank combines records into negotiations and operations.  A derived class for each format writes them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/timeline.h"

namespace hvd::trace {

class Timeline::Rank : public TraceListener {
 public:
  Rank(Timeline& timeline, int number) : timeline_(timeline), number_(number), decoder_(*this) {}

  TraceDecoder& decoder() { return decoder_; }
  /// Writes the beginnings of events that began until @p before_ns (the timeline's clock) and have not ended.
  void show_pending(std::int64_t before_ns);
  void set_clock(const TraceClock& clock);

  virtual void name(std::string_view host) = 0;
  /// @p arguments: a JSON object, or empty
  virtual void mark(std::string_view text, std::int64_t ns, std::string_view arguments = {}) = 0;
  /// A part of the rank's start, in the timeline's clock.  Chrome's format leaves it out: its rows are tensors.
  virtual void stage(std::string_view, std::int64_t, std::int64_t) {}

  void on_start() override;
  void on_clock(std::int64_t) override {}
  void on_track(std::uint32_t track, TraceTrack description) override;
  void on_submitted(std::uint32_t track, std::int64_t ns) override;
  void on_batch_begin(std::uint32_t batch, std::int64_t ns) override;
  void on_batch_tensor(std::uint32_t track) override;
  void on_phase_begin(std::uint32_t batch, Phase phase, std::int64_t ns) override;
  void on_phase_end(std::uint32_t batch, Phase phase, std::int64_t ns) override;
  void on_batch_end(std::uint32_t batch, std::int64_t ns) override;
  void on_failed(std::uint32_t track, std::int64_t ns) override;
  /// Chrome's format leaves out steps and their parts: its rows are tensors.
  void on_step(std::int64_t, std::int64_t) override {}
  void on_part(TracedPart, bool, std::int64_t) override {}
  void on_lost(bool engine, std::uint64_t records) override;

 protected:
  struct Row {
    TraceOp op = TraceOp::allreduce;
    std::uint32_t number = 0;   ///< the same in all ranks
    bool shown = false;         ///< the file has the beginning of NEGOTIATE of the first submission that waits
    std::int64_t ended_ns = 0;  ///< end of the last operation
    std::uint64_t taken = 0;    ///< submissions that are no longer in `submitted`
    /// Submissions that no batch has taken yet, from `first` on.  Several: a rank's threads arrive before its engine.
    std::vector<std::int64_t> submitted;
    std::size_t first = 0;

    bool waits() const { return first < submitted.size(); }
    std::int64_t next() const { return std::max(submitted[first], ended_ns); }
    void pop() {
      ++taken;
      if (++first < submitted.size()) return;
      submitted.clear();
      first = 0;
    }
  };
  struct Span {
    Phase phase;
    std::int64_t begin_ns, end_ns;  ///< end_ns < 0: under way
  };
  struct Batch {
    std::uint32_t number;
    std::int64_t begin_ns;
    bool shown = false;  ///< the file has the beginning of <OP>
    std::vector<std::uint32_t> tracks;
    std::vector<Span> phases;
  };

  /// Events for the derived class to write.  A row is an index of row(); times are in the rank's clock.
  /// @{
  virtual void restarted() = 0;
  virtual void row_named(std::size_t row, const TraceTrack& track) = 0;
  virtual void submitted(std::size_t row, std::int64_t ns) = 0;
  /// NEGOTIATE of a row's first submission.  Only its end, if the row is `shown`.
  virtual void negotiation(std::size_t row, std::int64_t begin_ns, std::int64_t end_ns, bool failed) = 0;
  virtual void negotiation_begun(std::size_t row) = 0;
  virtual void batch_begun(const Batch& batch) = 0;  ///< before its tensors' negotiations end
  virtual void operation_begun(std::size_t row, const Batch& batch) = 0;
  /// A tensor's operation in a batch, with its phases.  Without its beginning, if the batch is `shown`.
  virtual void operation(std::size_t row, const Batch& batch, std::int64_t end_ns) = 0;
  virtual void batch_ended(const Batch& batch, std::int64_t end_ns) = 0;
  virtual void clock_changed() = 0;
  virtual void lost(std::uint64_t in_all) = 0;
  /// @}

  Row& row(std::size_t index) { return rows_[index]; }
  std::int64_t at(std::int64_t ns) const { return ns + clock_.offset_ns; }

  Timeline& timeline_;
  const int number_;
  TraceClock clock_;

 private:
  Batch* find(std::uint32_t number);
  void negotiated(std::uint32_t track, std::int64_t ns, bool failed);
  void finish(Batch& batch, std::int64_t ns);
  void show(Batch& batch);

  TraceDecoder decoder_;
  std::vector<Row> rows_;  ///< [track - 1]
  std::vector<Batch> batches_;
  std::uint64_t lost_ = 0;
};

/// A submission may be this much later than its batch: times that were converted from ticks are not exact.
inline constexpr std::int64_t same_time_ns = 10'000;

}  // namespace hvd::trace
