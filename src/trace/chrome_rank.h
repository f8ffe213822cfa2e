/// @file chrome_rank.h — one rank of a timeline as Chrome JSON.  Chrome shows the rank as a process, each tensor as a
/// thread.
///
/// Thread 0 holds the events that belong to no tensor.  Each event is one line that ends in ",\n".  A finished
/// operation is a complete event (ph X).  An operation that takes longer than a second gets two events.  A begin event
/// (ph B) is written after a second, an end event (ph E) later.
#pragma once
#include "trace/timeline_rank.h"

namespace hvd::trace {

class ChromeRank : public Timeline::Rank {
 public:
  using Rank::Rank;

  void name(std::string_view host) override;
  void mark(std::string_view text, std::int64_t ns, std::string_view arguments = {}) override;
  void on_cycle(std::int64_t ns) override;

 protected:
  void restarted() override { texts_.clear(); }
  void row_named(std::size_t row, const TraceTrack& track) override;
  void submitted(std::size_t, std::int64_t) override {}
  void negotiation(std::size_t row, std::int64_t begin_ns, std::int64_t end_ns, bool failed) override;
  void negotiation_begun(std::size_t row) override;
  void batch_begun(const Batch&) override { heads_.clear(); }
  void operation_begun(std::size_t row, const Batch& batch) override;
  void operation(std::size_t row, const Batch& batch, std::int64_t end_ns) override;
  void batch_ended(const Batch&, std::int64_t) override { heads_.clear(); }
  void clock_changed() override;
  void lost(std::uint64_t in_all) override;

 private:
  struct RowTexts {
    std::string tail;       ///< `,"pid":0,"tid":7},\n`
    std::string arguments;  ///< like `tail`, with dtype and shape
    std::string ready;      ///< the end of a ready mark, which lies in the home rank's row
  };

  void name_row_zero();
  void begin_event(char phase, std::string_view name, std::int64_t ns);
  void ready(std::size_t row);
  void make_heads(const Batch& batch, TraceOp op, std::int64_t end_ns);

  bool row_zero_named_ = false;
  std::vector<RowTexts> texts_;  ///< by row
  /// The beginnings of a batch's events, up to the row.  All tensors of the batch with operation heads_op_ share them.
  std::vector<std::string> heads_;
  TraceOp heads_op_ = TraceOp::allreduce;
};

}  // namespace hvd::trace
