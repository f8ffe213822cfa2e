/// @file stand_in.h — what a rank that has joined uses in place of an operation of its own.
#pragma once
#include <cstdlib>
#include <memory>

#include "core/operation/name_entry.h"

namespace hvd::core {

/// An entry without a name, and zeros (or no rows) for its tensor, which take the result too.
struct StandIn {
  NameEntry entry;  ///< its operation is null once that has ended
  std::unique_ptr<void, void (*)(void*)> zeros{nullptr, std::free};

  /// For rank @p rank of @p size.  Throws Error{unavailable}.
  static std::unique_ptr<StandIn> make(const Signature& signature, std::uint32_t id, int rank, int size);
};

}  // namespace hvd::core
