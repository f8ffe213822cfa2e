#include "core/batch/shared_results.h"

#include <vector>

#include "core/operation/name_entry.h"
#include "ops/kernels/slice_hash.h"

namespace hvd::core {

ResultPlace SharedResults::place_of(const Operation& op, const Backend* backend) const {
  const NameEntry& e = *op.entry;
  const int nodes = work_.nodes.count();
  ResultPlace place;
  place.origin = backend ? backend->origin : ResultOrigin::slot;
  place.out = op.out;
  const bool broadcast = e.signature.operation() == Kind::broadcast;
  if (place.origin == ResultOrigin::slot) {
    // Between two nodes each leader may add up by itself; between more, the coordinator's leader does it for all.
    place.one_sum = broadcast || nodes > 2;
    place.slot = e.slot;
    place.parity = op.parity;
    if (nodes == 1 && broadcast) place.root = e.signature.root;
    if (nodes == 1 && e.reduce) {
      place.origin = ResultOrigin::own_sum;
      place.add = e.reduce;
      place.scale = e.scale;
      place.element_bytes = element_bytes(e.signature.type());
    }
  } else {
    place.one_sum = broadcast || (place.origin == ResultOrigin::ring && work_.reduction.sums_once());
  }
  return place;
}

std::optional<std::uint64_t> SharedResults::hash(const ResultPlace& place, std::size_t begin, std::size_t end) const {
  std::vector<unsigned char> bytes(end - begin);
  if (place.origin == ResultOrigin::slot)
    return ops::slice_hash(work_.slots.at(place.root, place.slot, place.parity) + begin, end - begin);
  if (place.origin == ResultOrigin::own_sum) {
    std::vector<const void*> inputs;
    for (int r = 0; r < work_.node.ranks; ++r) inputs.push_back(work_.slots.at(r, place.slot, place.parity) + begin);
    place.add(inputs.data(), work_.node.ranks, bytes.data(), bytes.size() / place.element_bytes, place.scale);
  } else if (place.origin != ResultOrigin::ring || !work_.reduction.result_again(place.out, begin, end, bytes.data())) {
    return std::nullopt;
  }
  return ops::slice_hash(bytes.data(), bytes.size());
}

}  // namespace hvd::core
