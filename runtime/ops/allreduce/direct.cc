#include "ops/allreduce/direct.h"

#include <algorithm>
#include <cstring>

namespace hvd::ops {
namespace {

constexpr std::size_t part_bytes = 16 << 10;  ///< reduced into one array, then copied to the others from the L1 cache
constexpr std::size_t piece_bytes = 1 << 20;  ///< reduced in one step()

}  // namespace

bool RegisteredTensors::reach_all() {
  if (!reach_all_) {  // every rank sets `reach` before its first ready bit
    bool all = true;
    for (int r = 0; r < node_.ranks; ++r) all &= node_.presence(r).reach.load(std::memory_order_acquire) != 0;
    reach_all_ = all;
  }
  return *reach_all_;
}

bool RegisteredTensors::registered(std::uint32_t id, unsigned parity) {
  if (node_.ranks < 2 || id >= memory::most_addresses) return false;
  for (int r = 0; r < node_.ranks; ++r) {
    const memory::TensorAddress& p = node_.tensor_address(r, id, parity);
    if (p.in.load(std::memory_order_acquire) == 0 || p.out.load(std::memory_order_relaxed) == 0) return false;
  }
  return reach_all();
}

void DirectAllreduce::clear() {
  stream_.clear();
  in_.clear();
  out_.clear();
  done_ = true;
}

void DirectAllreduce::add(Item item, std::uint32_t id, unsigned parity) {
  if (item.bytes == 0) return;
  stream_.add(item);
  for (int r = 0; r < rings_.ranks; ++r) {
    const memory::TensorAddress& p = rings_.node.tensor_address(r, id, parity);
    in_.push_back(rings_.node.arena(r) + (p.in.load(std::memory_order_relaxed) - 1));
    out_.push_back(rings_.node.arena(r) + (p.out.load(std::memory_order_relaxed) - 1));
  }
}

void DirectAllreduce::begin() {
  if (empty()) return;
  const Cut cut{stream_.bytes, stream_.bytes, rings_.ranks, {}};
  at_ = cut.slice(0, rings_.me);
  end_ = cut.slice(0, rings_.me + 1);
  ++batch_;
  posted_ = done_ = false;
}

bool DirectAllreduce::step() {
  if (done_) return false;
  if (at_ < end_) {
    const std::size_t to = std::min(end_, at_ + piece_bytes);
    reduce(at_, to);
    at_ = to;
    return true;
  }
  if (!posted_) {
    rings_.post(&memory::Progress::direct, batch_);
    posted_ = true;
  }
  done_ = rings_.all(&memory::Progress::direct, batch_);
  return done_;
}

void DirectAllreduce::reduce(std::size_t begin, std::size_t end) {
  const auto n = static_cast<std::size_t>(rings_.ranks), me = static_cast<std::size_t>(rings_.me);
  const void* source[memory::most_ranks];
  stream_.pieces(begin, end, [&](const Item& item, std::size_t from, std::size_t, std::size_t bytes) {
    const auto index = static_cast<std::size_t>(&item - stream_.items.data());
    unsigned char* const* in = in_.data() + index * n;
    unsigned char* const* out = out_.data() + index * n;
    for (std::size_t done = 0; done < bytes; done += part_bytes) {
      const std::size_t at = from + done, m = std::min(part_bytes, bytes - done);
      for (std::size_t r = 0; r < n; ++r) source[r] = in[r] + at;
      item.reduce(source, rings_.ranks, out[me] + at, m / item.element_bytes, item.scale);
      item.look(at, m, out[me] + at, source, rings_.ranks, item.dtype);
      for (std::size_t r = 0; r < n; ++r)
        if (r != me) std::memcpy(out[r] + at, out[me] + at, m);
    }
  });
}

}  // namespace hvd::ops
