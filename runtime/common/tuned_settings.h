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

  friend bool operator==(const TunedSettings&, const TunedSettings&) = default;
};

}  // namespace hvd
