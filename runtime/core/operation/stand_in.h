/// @file stand_in.h — an operation of zeros, which a rank that has joined contributes to the other ranks' operations.
#pragma once
#include <cstdlib>
#include <memory>

#include "core/operation/name_entry.h"

namespace hvd::core {

/// An entry without a name.  The entry's tensor is zeros, or has no rows; the result is written to the same memory.
struct StandIn {
  NameEntry entry;  ///< `operation` is null once the operation has ended
  std::unique_ptr<void, void (*)(void*)> zeros{nullptr, std::free};

  /// Makes the operation for rank @p rank of @p size.  Throws Error{unavailable}.
  static std::unique_ptr<StandIn> make(const Signature& signature, std::uint32_t id, int rank, int size);
};

}  // namespace hvd::core
