/// @file perfetto_rank.h — one rank of a timeline in Perfetto's format.
///
/// Each rank has two top tracks.  The first shows its steps, and in them the time for input, checkpoints and Python's
/// garbage collector.  The second shows the rank's start, its batches, and the ranks for which it waited.
///
/// Two tracks are folded below the second: the bytes under way, and the tensors.  The tensors' tracks show
/// negotiations, operations and phases.  One track for all ranks shows the time between the first and the last rank's
/// arrival.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/perfetto/perfetto_waits.h"
#include "trace/timeline_rank.h"

namespace hvd::trace {

class PerfettoRank : public Timeline::Rank {
 public:
  PerfettoRank(Timeline& timeline, int number, PerfettoWaits& shared);

  void name(std::string_view host) override;
  void mark(std::string_view text, std::int64_t ns, std::string_view arguments = {}) override;
  void stage(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns) override;
  void on_clock(std::int64_t ns) override;
  void on_cycle(std::int64_t ns) override;
  void on_step(std::int64_t number, std::int64_t ns) override;
  void on_part(TracedPart part, bool begins, std::int64_t ns) override;

 protected:
  void restarted() override;
  void row_named(std::size_t row, const TraceTrack& track) override;
  void submitted(std::size_t row, std::int64_t ns) override;
  void negotiation(std::size_t row, std::int64_t begin_ns, std::int64_t end_ns, bool failed) override;
  void negotiation_begun(std::size_t row) override;
  void batch_begun(const Batch& batch) override;
  void operation_begun(std::size_t row, const Batch& batch) override;
  void operation(std::size_t row, const Batch& batch, std::int64_t end_ns) override;
  void batch_ended(const Batch& batch, std::int64_t end_ns) override;
  void clock_changed() override;
  void lost(std::uint64_t in_all) override;

 private:
  struct RowTrack {
    std::uint64_t track;
    std::uint64_t bytes;
    std::uint64_t flow;  ///< the flow number of the row's first operation
    std::uint64_t submissions = 0;
  };
  /// The counter of submitted bytes that no batch has taken yet.
  struct BytesUnderWay {
    std::uint64_t track;
    std::deque<std::pair<std::int64_t, std::uint64_t>> coming{};  ///< (time, bytes) not yet added to `value`
    std::uint64_t value = 0;
    std::int64_t at_ns = 0;  ///< of its last value
  };
  /// The row of steps and of their parts; its tracks are 0 until the first step.
  struct StepRow {
    std::uint64_t track = 0, time_track = 0;
    std::int64_t began_ns = 0;
    bool is_open = false;
    std::vector<TracedPart> parts{};  ///< under way, the innermost last
  };
  std::uint64_t key(std::size_t index) { return std::uint64_t{starts_} << 32 | row(index).number; }
  std::int64_t time(std::int64_t ns) const { return shared_.time(at(ns)); }
  void slice(std::uint64_t track, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
             std::uint64_t flow = 0);
  std::uint64_t flow(std::size_t row) { return tracks_[row].flow + this->row(row).taken; }
  void count_bytes(std::int64_t until_ns, std::uint64_t done);
  std::uint64_t runtime_track();
  std::uint64_t steps_track();
  void end_parts(std::int64_t ns);

  PerfettoWaits& shared_;
  PerfettoPackets& packets_;
  const std::uint64_t track_;
  BytesUnderWay bytes_;
  const std::uint64_t tensors_track_;
  std::uint64_t runtime_track_ = 0;
  StepRow step_;
  std::unordered_map<std::string, std::uint64_t> tensor_tracks_;  ///< by row and shown name; kept in a restart
  std::vector<RowTrack> tracks_;                                  ///< by row
  std::uint32_t starts_ = 0;
  std::int64_t launched_ns_ = -1;  ///< end of the last part of the start, in the timeline's clock; -1 after init()
  std::int64_t free_ns_ = 0;       ///< end of the rank's last batch
};

}  // namespace hvd::trace
