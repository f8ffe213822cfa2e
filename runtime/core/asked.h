/// @file asked.h — the request that came with a name last time, so that the same one need not be checked again.
#pragma once
#include <cstdint>
#include <cstring>

#include "hvd/hvd.h"

namespace hvd::core {

/// What a request says but for its name, its set, and where its tensor lies.  Only of kinds without a result, in host
/// memory, with few dimensions: the others are checked each time.
struct Asked {
  static constexpr std::int32_t most_dims = 4;
  std::int32_t kind = -1;  ///< -1: nothing to compare with
  std::int32_t dtype = 0, reduce = 0, ndim = 0, root = 0;
  std::uint32_t place = 0;  ///< in its group
  double prescale = 0, postscale = 0;
  std::int64_t dims[most_dims] = {};

  /// @p q has been checked.
  void keep(const hvd_request& q, std::uint32_t at) {
    kind = -1;
    if (q.kind != HVD_ALLREDUCE && q.kind != HVD_BROADCAST) return;
    if (q.device != HVD_HOST_DEVICE || q.ndim > most_dims || !q.in || !q.out) return;
    kind = q.kind;
    dtype = q.dtype;
    reduce = q.reduce;
    ndim = q.ndim;
    root = q.root;
    place = at;
    prescale = q.prescale;
    postscale = q.postscale;
    if (ndim > 0) std::memcpy(dims, q.shape, static_cast<std::size_t>(ndim) * sizeof dims[0]);
  }

  bool same(const hvd_request& q) const {
    if (q.struct_size != sizeof q || q.kind != kind || q.dtype != dtype || q.reduce != reduce || q.ndim != ndim ||
        q.root != root || q.prescale != prescale || q.postscale != postscale || q.device != HVD_HOST_DEVICE || !q.in ||
        !q.out || q.splits || !q.name || (ndim > 0 && !q.shape))
      return false;
    for (std::int32_t i = 0; i < ndim; ++i)
      if (q.shape[i] != dims[i]) return false;
    return true;
  }
};

}  // namespace hvd::core
