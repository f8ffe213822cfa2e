/// @file tuned_settings.h — what may change while a job runs, and what it is where nothing is tuned.
///
/// None of it changes the bits of a result: neither what is fused, nor where slices end, nor the stages of an exchange
/// do (docs/decisions/60).
#pragma once
#include <cstdint>

namespace hvd {

/// The same on all ranks from some batch on: the coordinator publishes it between two batches.
struct TunedSettings {
  std::int64_t fusion_bytes = 128 << 20;  ///< most in one batch
  std::int64_t hold_ns = 1'000'000;       ///< longest time that a tensor is held to be fused
  std::int64_t slice_bytes = 0;           ///< largest slice of an exchange between nodes; 0: built in
  std::int64_t latency_ns = 15'000;       ///< of a message between nodes: says how many rounds an exchange has, and how
                                          ///< many slices are under way

  /// Within what the runtime can do.  A slice is a multiple of a line.
  bool possible() const {
    return fusion_bytes >= 0 && fusion_bytes <= std::int64_t{1} << 50 && hold_ns >= 0 && hold_ns <= 1'000'000'000'000 &&
           (slice_bytes == 0 || (slice_bytes >= 4096 && slice_bytes <= 64 << 20 && slice_bytes % 64 == 0)) &&
           latency_ns >= 100 && latency_ns <= 1'000'000'000;
  }
  friend bool operator==(const TunedSettings&, const TunedSettings&) = default;
};

}  // namespace hvd
