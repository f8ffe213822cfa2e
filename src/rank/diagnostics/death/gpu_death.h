/// @file gpu_death.h — whether a rank died because of its GPU: full GPU memory, or errors that the driver reports.
/// Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "wire/messages/death.h"

namespace hvd::rank {

/// The last known state of a GPU.
struct GpuFacts {
  struct GpuProcess {
    int pid = 0;
    std::string name;  ///< empty: not known here, as for another container's
    bool own = false;  ///< the rank, or a descendant of it
    std::int64_t bytes = 0;
  };
  std::int64_t total_bytes = 0, free_bytes = 0;  ///< 0 of 0: not known
  std::vector<GpuProcess> processes{};           ///< that computed on this GPU
  std::vector<std::uint64_t> xids{};             ///< errors that the driver reported since the rank's start
  std::int64_t lost_words = 0;                   ///< memory errors since then that ECC could not correct
};

struct GpuVerdict {
  std::string text;  ///< empty: nothing to be said
  std::string hint;
  wire::DeathFact fact = wire::DeathFact::none;
};

/// Decides whether the GPU's memory ran out, and returns the evidence.  Looks in the rank's last words for messages of
/// torch, JAX, TensorFlow, the CUDA libraries and libhvd.  The last words are its traceback, else the end of its
/// output.
GpuVerdict out_of_gpu_memory(const std::string& last_words, const GpuFacts& facts);

/// Errors of the GPU itself, in words where the driver's number is known.
GpuVerdict gpu_errors(const GpuFacts& facts);

}  // namespace hvd::rank
