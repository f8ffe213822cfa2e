/// @file request_key.h — the request that came with a name last time, so that the same one need not be checked again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hvd/hvd.h"

namespace hvd::core {

/// What a request says but for its name, and where its tensor lies.  Only of kinds without a result, with few
/// dimensions: the others are checked each time.
struct RequestKey {
  static constexpr std::int32_t most_dims = 4;

  /// Three runs of the request's bytes, 16 each: compared in as many steps.
  struct Image {
    std::uint64_t words[6] = {};  ///< struct_size 0: nothing to compare with
    static Image of(const hvd_request& q) {
      Image i;
      std::memcpy(i.words, &q.struct_size, 16);
      std::memcpy(i.words + 2, &q.ndim, 16);
      std::memcpy(i.words + 4, &q.prescale, 16);
      return i;
    }
    bool operator==(const Image& o) const {
      return ((words[0] ^ o.words[0]) | (words[1] ^ o.words[1]) | (words[2] ^ o.words[2]) | (words[3] ^ o.words[3]) |
              (words[4] ^ o.words[4]) | (words[5] ^ o.words[5])) == 0;
    }
  };
  static_assert(offsetof(hvd_request, struct_size) == 0 && offsetof(hvd_request, kind) == 4 &&
                    offsetof(hvd_request, dtype) == 8 && offsetof(hvd_request, reduce) == 12,
                "the first run");
  static_assert(offsetof(hvd_request, root) == offsetof(hvd_request, ndim) + 4 &&
                    offsetof(hvd_request, set) == offsetof(hvd_request, ndim) + 8 &&
                    offsetof(hvd_request, device) == offsetof(hvd_request, ndim) + 12 &&
                    offsetof(hvd_request, postscale) == offsetof(hvd_request, prescale) + 8,
                "the other two");

  Image image;
  std::int32_t ndim = 0;
  std::uint32_t place = 0;  ///< in its group
  std::int64_t dims[most_dims] = {};

  /// @p q has been checked.
  void keep(const hvd_request& q, std::uint32_t at) {
    image = {};
    if (q.kind != HVD_ALLREDUCE && q.kind != HVD_BROADCAST) return;
    if (q.ndim > most_dims || !q.in || !q.out) return;
    image = Image::of(q);
    ndim = q.ndim;
    place = at;
    if (ndim > 0) std::memcpy(dims, q.shape, static_cast<std::size_t>(ndim) * sizeof dims[0]);
  }

  bool same(const hvd_request& q) const {
    if (!(image == Image::of(q)) || !q.in || !q.out || q.splits || !q.name || (ndim > 0 && !q.shape)) return false;
    for (std::int32_t i = 0; i < ndim; ++i)
      if (q.shape[i] != dims[i]) return false;
    return true;
  }
};

}  // namespace hvd::core
