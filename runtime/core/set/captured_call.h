/// @file captured_call.h — the data by which the ranks of a set compare a call that they record in CUDA graphs.
///
/// A graph runs without the host, so no rank compares calls then.  Ranks with different calls would wait for each other
/// for ever.  Therefore the ranks compare each call when they record it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation/checked_request.h"

namespace hvd::core {

/// One rank's part of a call.
struct CapturedCall {
  std::string refusal;   ///< why this rank cannot record the call; empty: it can
  std::string offer;     ///< gpu::Captures::offer(), in the set's first call
  std::string requests;  ///< requests_text()

  std::string message() const;
  /// The inverse of message().  An empty message comes from a rank that has joined.  Throws std::runtime_error.
  static CapturedCall of(std::string_view message);
};

/// The properties of @p requests on which all ranks must agree, in order, as bytes.
std::string requests_text(std::span<const CheckedRequest> requests);

/// Throws the same Error on all ranks: usage if a rank refuses the call, mismatch if the ranks' calls differ.
/// @param all          [ranks of the set]
/// @param world_ranks  [ranks of the set] the ranks' numbers in the world
/// @param number       of the call within the set, from 1
void check_alike(std::span<const CapturedCall> all, std::span<const int> world_ranks, std::uint64_t number);

}  // namespace hvd::core
