#include <map>
#include <tuple>

#include "gpu/nccl/launch/gpu_batch.h"

namespace hvd::nccl {
namespace {

constexpr std::size_t large = 8 << 20;  ///< from this size on, packing and unpacking cost more than a separate call
constexpr std::size_t align = 128;      ///< alignment of a tensor in the buffer, in bytes

}  // namespace

std::vector<FusedGroup> fuse(const std::vector<DeviceTensor>& tensors, int size, const Capabilities& capabilities,
                             std::size_t* buffer_bytes, int parts) {
  std::vector<FusedGroup> all;
  std::map<std::tuple<DType, Reduce, double, double>, std::size_t> group;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DeviceTensor& t = tensors[i];
    if (t.kind != Kind::allreduce || t.bytes() == 0) continue;
    if (t.bytes() >= large && !widened(t, capabilities)) continue;
    const auto [at, fresh] = group.emplace(std::tuple(t.dtype, t.reduce, t.before, t.after), all.size());
    if (fresh) all.emplace_back();
    all[at->second].tensors.push_back(i);
  }
  // A single tensor gains nothing from packing, and is scaled in its own memory.
  std::erase_if(all, [&](const FusedGroup& f) {
    return f.tensors.size() == 1 && !widened(tensors[f.tensors.front()], capabilities);
  });
  std::size_t end = 0;
  const std::size_t step = align * static_cast<std::size_t>(parts);
  for (FusedGroup& f : all) {
    const DeviceTensor& first = tensors[f.tensors.front()];
    f.wide = widened(first, capabilities);
    f.scaling = scaling_of(first, size, capabilities, true);
    f.begin = end;
    for (std::size_t i : f.tensors) {
      f.at.push_back(end);
      const std::size_t bytes = f.wide ? tensors[i].elements() * sizeof(float) : tensors[i].bytes();
      end += (bytes + align - 1) / align * align;
    }
    end = f.begin + (end - f.begin + step - 1) / step * step;
    f.bytes = end - f.begin;
  }
  *buffer_bytes = end;
  return all;
}

}  // namespace hvd::nccl
