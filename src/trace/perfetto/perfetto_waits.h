/// @file perfetto_waits.h — the waits of all ranks in a Perfetto timeline, and the rank for which each waited.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/perfetto/perfetto_packets.h"

namespace hvd::trace {

/// Finds the rank that arrives last at each operation.  Names that rank in the waits of the other ranks.
class PerfettoWaits {
 public:
  PerfettoWaits(std::string& to, std::int64_t origin_ns) : packets(to), origin_ns_(origin_ns) {}

  /// A rank's wait before a batch.  `tensors` holds two numbers for each tensor of the batch.  The numbers are the key
  /// of the tensor's row, and the index of its submission in that row.  The index starts at 0 again whenever recording
  /// starts. Therefore the upper half of a key is the number of starts.
  struct BatchWait {
    int rank;
    std::uint64_t track;
    std::int64_t begin_ns, end_ns;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> tensors;
  };

  void add_rank(int rank, std::string name) { names_[rank] = std::move(name); }
  /// Reports submission @p index (from 0) of a rank to the row of @p key.  @p ns  in the timeline's clock
  void arrived(int rank, std::uint64_t key, std::uint64_t index, std::int64_t ns);
  void wait(BatchWait wait);
  /// Writes the waits whose last rank is known, and all waits that ended until @p before_ns.
  void write_known(std::int64_t before_ns);
  /// Called when records were lost.  From then on the indices of submissions are wrong.  So no later wait names a rank.
  void forget();
  /// Reports the beginning of an operation.  Perfetto's page begins at the first one that is reported.
  void operation_at(std::int64_t ns);
  std::int64_t time(std::int64_t ns) const { return ns - origin_ns_ + perfetto_zero_ns; }

  PerfettoPackets packets;

 private:
  /// The ranks' arrivals at one submission of one row.
  struct Arrivals {
    std::size_t ranks = 0;
    int last_rank = -1;
    std::int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
  };
  /// The rank that came last to a batch, -1 if unknown.
  struct Last {
    int rank = -1;
    bool final = false;  ///< no rank can come later
  };
  struct RowArrivals {
    std::uint64_t first = 0;  ///< the index of all.front()
    std::deque<Arrivals> all;
  };
  Arrivals* arrivals_of(std::uint64_t key, std::uint64_t index);
  Last last_of(const BatchWait& wait);
  void write(const BatchWait& wait, int last_rank);

  const std::int64_t origin_ns_;
  std::map<int, std::string> names_;
  std::unordered_map<std::uint64_t, RowArrivals> rows_;
  std::deque<BatchWait> waits_;
  std::uint64_t skew_track_ = 0;
  std::int64_t skew_at_ns_ = 0, skew_ns_ = 0;
  bool forgotten_ = false, begun_ = false;
};

}  // namespace hvd::trace
