/// @file gpu_death.h — what a rank's GPU had to do with its death: memory that ran out, and what its driver reports.
/// Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::rank {

/// What was last seen of a GPU.
struct GpuFacts {
  struct GpuProcess {
    int pid = 0;
    std::string name;  ///< empty: not known here, as for another container's
    bool own = false;  ///< the rank, or below it
    std::int64_t bytes = 0;
  };
  std::int64_t total_bytes = 0, free_bytes = 0;  ///< 0 of 0: not known
  std::vector<GpuProcess> processes{};           ///< that computed on it
  std::vector<std::uint64_t> xids{};             ///< errors that the driver reported since the rank's start
  std::int64_t lost_words = 0;                   ///< memory errors since then that ECC could not correct
};

struct GpuVerdict {
  std::string text;  ///< empty: nothing to be said
  std::string hint;
};

/// Whether, and how, the GPU's memory ran out, from the rank's last words (its traceback, else the end of its output):
/// those of torch, JAX, TensorFlow, the CUDA libraries and libhvd are known.
GpuVerdict out_of_gpu_memory(const std::string& last_words, const GpuFacts& facts);

/// Errors of the GPU itself: those of the driver's numbers that are known in words.
GpuVerdict gpu_errors(const GpuFacts& facts);

}  // namespace hvd::rank
