/// @file tuned_settings.h — the settings that may change while a job runs, and their defaults.
///
/// No setting changes the bits of a result.  A result does not depend on fusion, on the ends of slices, or on the
/// stages of an exchange (docs/decisions/60).
#pragma once
#include <cstdint>

namespace hvd {

/// Equal on all ranks for each batch: the coordinator publishes new settings between two batches.
struct TunedSettings {
  std::int64_t fusion_bytes = 128 << 20;  ///< most bytes in one batch
  std::int64_t hold_ns = 1'000'000;       ///< longest time for which a tensor waits to be fused
  std::int64_t slice_bytes = 0;           ///< largest slice of an exchange between nodes; 0: the built-in size
  std::int64_t latency_ns = 15'000;  ///< latency of a message between nodes.  Determines the number of rounds of an
                                     ///< exchange, and the number of slices under way

  /// True if the runtime supports these values.  A slice must be a multiple of a cache line.
  bool possible() const {
    return fusion_bytes >= 0 && fusion_bytes <= std::int64_t{1} << 50 && hold_ns >= 0 && hold_ns <= 1'000'000'000'000 &&
           (slice_bytes == 0 || (slice_bytes >= 4096 && slice_bytes <= 64 << 20 && slice_bytes % 64 == 0)) &&
           latency_ns >= 100 && latency_ns <= 1'000'000'000;
  }
  friend bool operator==(const TunedSettings&, const TunedSettings&) = default;
};

}  // namespace hvd
