/// @file signature.h — the properties of an operation on which all ranks must agree.
///
/// A signature is a plain value without padding: two signatures are equal if their bytes are equal.  A record carries
/// it to the coordinator.  At every submit of a known name it is compared with the name's signature.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/types.h"

namespace hvd {

inline constexpr int max_dims = 64;

/// A signature without its dimensions.
struct SignatureHead {
  std::uint8_t kind = 0, dtype = 0, reduce = 0, ndim = 0;
  std::int32_t root = 0;         ///< of a broadcast, else 0; of a join: negotiate/command.h
  std::int32_t device = -1;      ///< HVD_HOST_DEVICE; 0: each rank's own GPU
  std::uint32_t group_size = 0;  ///< operations in the group; 0: in no group
  std::uint64_t group = 0;       ///< hash of the names of all operations in the group
  double before = 1, after = 1;  ///< prescale and postscale factors

  bool in_group(std::uint64_t which) const { return group_size != 0 && group == which; }
  Kind operation() const { return static_cast<Kind>(kind); }
  DType type() const { return static_cast<DType>(dtype); }
  Reduce reduction() const { return static_cast<Reduce>(reduce); }
  /// The first dimension may differ by rank, so the signature has -1 there.
  bool has_own_rows() const { return is_among(operation(), own_rows_kinds); }
};

struct Signature : SignatureHead {
  std::int64_t dims[max_dims];  ///< [ndim]; allgather, alltoall: dims[0] is -1, since it may differ by rank

  Signature() {}
  /// @p shape: [head.ndim], at least one for an operation whose ranks have their own rows.
  Signature(const SignatureHead& head, const std::int64_t* shape) : SignatureHead(head) {
    for (int i = 0; i < ndim; ++i) dims[i] = shape[i];
    if (has_own_rows()) dims[0] = -1;
  }
  // Copies only the first ndim dimensions, since most tensors have few.
  Signature(const Signature& o) noexcept { std::memcpy(static_cast<void*>(this), &o, o.bytes()); }
  Signature& operator=(const Signature& o) noexcept {
    std::memmove(static_cast<void*>(this), &o, o.bytes());
    return *this;
  }

  std::size_t bytes() const { return sizeof(SignatureHead) + sizeof(std::int64_t) * ndim; }
  std::string_view blob() const { return {reinterpret_cast<const char*>(this), bytes()}; }

  bool operator==(const Signature& o) const { return ndim == o.ndim && std::memcmp(this, &o, bytes()) == 0; }
  /// True if Signature(@p head, @p shape) is this signature.
  bool is(const SignatureHead& head, const std::int64_t* shape) const {
    if (std::memcmp(static_cast<const SignatureHead*>(this), &head, sizeof head) != 0) return false;
    for (int i = has_own_rows() ? 1 : 0; i < ndim; ++i)
      if (dims[i] != shape[i]) return false;
    return true;
  }

  /// The product of the dimensions.  An unknown first dimension (-1) counts as 1.
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < ndim; ++i)
      if (dims[i] >= 0) n *= dims[i];
    return n;
  }
  std::int64_t payload_bytes() const { return elements() * static_cast<std::int64_t>(element_bytes(type())); }
};
static_assert(sizeof(SignatureHead) == 40 && sizeof(Signature) == 40 + sizeof(std::int64_t) * max_dims,
              "a signature has no padding: its bytes are compared and sent");

}  // namespace hvd
