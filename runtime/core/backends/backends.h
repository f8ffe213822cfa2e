/// @file backends.h — the list of backends, and the choice among them.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/backends/backend.h"

namespace hvd::core {

/// All backends, in the order in which a batch runs them.
std::span<const Backend* const> backends();
/// The index of the first backend with the same stage.  Parts of a batch have these numbers.
std::size_t part_of(const Backend& backend);

/// The user's wish: this backend runs operations of from_bytes to to_bytes, both included, if it can.
struct BackendOverride {
  const Backend* backend;
  std::size_t from_bytes, to_bytes;
};
/// "shm_rings", "shm_rings:1M-64M", several with commas; sizes with K, M or G.  Throws Error{usage} naming @p variable.
std::vector<BackendOverride> parse_overrides(const std::string& text, const char* variable);

/// The first override that can run the operation, else the cheapest backend that can.  nullptr: a barrier or a join,
/// which no backend runs.  Pure.
const Backend* choose(const OperationFacts& operation, const SetFacts& set, std::span<const BackendOverride> overrides);

}  // namespace hvd::core
