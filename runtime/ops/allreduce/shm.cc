#include "ops/allreduce/shm.h"

#include <algorithm>

namespace hvd::ops {
namespace {

using memory::Progress;
constexpr std::size_t block_bytes = 8 << 10;     ///< reduced in the L1 cache, then stored in the tensor and the ring
constexpr std::size_t streaming_from = 4 << 20;  ///< outputs of this size leave the caches anyway

}  // namespace

void ShmAllreduce::begin(const Stream& stream, const Cut& cut, SliceHook* hook) {
  stream_ = &stream;
  hook_ = hook;
  cut_ = cut;
  base_ = rings_.next;
  rings_.next += cut_.chunks();
  in_ = expected_ = used_ = reduced_ = out_ = 0;
  places_.clear();
  // In place, the lines of the output are still in the cache, and plain stores are faster (both cases measured).
  streaming_out_ =
      stream.bytes >= streaming_from && !stream.items.empty() && stream.items.front().in != stream.items.front().out;
}

bool ShmAllreduce::step() {
  const std::uint64_t chunks = cut_.chunks();
  bool moved = false;
  if (in_ < chunks && rings_.may_write_ring(base_ + in_)) {
    copy_in(in_++);
    rings_.post(&Progress::in, base_ + in_);
    moved = true;
  }
  if (step_reduce()) moved = true;
  if (out_ < reduced_ && rings_.all(&Progress::reduced, base_ + out_ + 1)) {
    copy_out(out_++);
    rings_.post(&Progress::out, base_ + out_);
    if (out_ == chunks && streaming_out_) store_fence();
    moved = true;
  }
  return moved;
}

/// Returns true if all ranks have copied in the next chunk, and its buffer of the result ring is free.  A rank that is
/// alone on its node and has a hook does not use the result ring.
bool ShmAllreduce::may_reduce() const {
  if (used_ == in_ || !rings_.all(&Progress::in, base_ + used_ + 1)) return false;
  return (hook_ && rings_.ranks == 1) || rings_.may_write_result(base_ + used_);
}

bool ShmAllreduce::step_reduce() {
  bool moved = false;
  if (hook_) expect();
  if ((!hook_ || used_ < expected_) && may_reduce()) {
    hook_ ? reduce_part(used_++) : reduce(used_++);
    rings_.post(&Progress::used, base_ + used_);
    moved = true;
  }
  if (reduced_ < used_ && (hook_ == nullptr || hook_->finished())) {
    publish(reduced_++);
    moved = true;
  }
  return moved;
}

void ShmAllreduce::copy_in(std::uint64_t k) {
  unsigned char* ring = rings_.node.ring(rings_.me, base_ + k);
  const std::size_t chunk = cut_.begin(k);
  auto put = [&](std::size_t begin, std::size_t end) {
    stream_->pieces(begin, end, [&](const Item& item, std::size_t from, std::size_t at, std::size_t bytes) {
      rings_.put(ring + (at - chunk), item.in + from, bytes);
    });
  };
  put(chunk, my_begin(k));
  put(my_end(k), cut_.end(k));
}

void ShmAllreduce::reduce(std::uint64_t k) {
  const std::size_t chunk = cut_.begin(k), begin = my_begin(k), end = my_end(k);
  unsigned char* result = rings_.node.result(base_ + k);
  alignas(64) unsigned char block[block_bytes];
  const unsigned char* ring[memory::most_ranks];
  const void* source[memory::most_ranks];
  for (int r = 0; r < rings_.ranks; ++r) ring[r] = rings_.node.ring(r, base_ + k);
  stream_->pieces(begin, end, [&](const Item& item, std::size_t from, std::size_t at, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes; done += block_bytes) {
      const std::size_t n = std::min(block_bytes, bytes - done);
      for (int r = 0; r < rings_.ranks; ++r)
        source[r] = r == rings_.me ? item.in + from + done : ring[r] + (at + done - chunk);
      // With plain stores, the sum is written to the tensor, and copied to the ring while it is in the L1 cache.
      unsigned char* out = item.out + from + done;
      unsigned char* to = streaming_out_ ? block : out;
      item.reduce(source, rings_.ranks, to, n / item.element_bytes, item.scale);
      item.look(from + done, n, to, source, rings_.ranks, item.dtype);
      if (streaming_out_) copy_streaming(out, block, n);
      rings_.put(result + (at + done - chunk), to, n);
    }
  });
}

const Item* ShmAllreduce::tensor_of(std::uint64_t k) const {
  if (rings_.ranks > 1 || !hook_->takes_tensors()) return nullptr;
  const Item* tensor = nullptr;
  int tensors = 0;
  stream_->pieces(my_begin(k), my_end(k), [&](const Item& item, std::size_t, std::size_t, std::size_t) {
    tensor = &item;
    ++tensors;
  });
  const bool as_it_is =
      tensors == 1 && tensor->wide.element_bytes == 0 && tensor->scale.before == 1 && tensor->scale.weights == nullptr;
  return as_it_is ? tensor : nullptr;
}

/// Announces slices ahead, so that the hook posts their receives.  A buffer of the result ring is announced only once
/// at a time.
void ShmAllreduce::expect() {
  constexpr std::uint64_t buffers = 2;
  const std::uint64_t most = rings_.ranks == 1 ? hook_->most_slices() : buffers;
  for (; expected_ < std::min(cut_.chunks(), reduced_ + most); ++expected_) {
    const Item* tensor = tensor_of(expected_);
    const std::size_t begin = my_begin(expected_), end = my_end(expected_);
    unsigned char* place = nullptr;
    if (tensor)
      place = tensor->out + (begin - tensor->at);
    else if (rings_.ranks > 1)
      place = rings_.node.result(base_ + expected_) + (begin - cut_.begin(expected_));
    places_.push_back(hook_->expect(place, begin, end, tensor != nullptr));
  }
}

/// Reduces this rank's slice over this node, for the hook.  The sum is not divided or scaled with `after` yet.  The
/// part has a wider type if the dtype would lose precision.
void ShmAllreduce::reduce_part(std::uint64_t k) {
  if (const Item* tensor = tensor_of(k)) return hook_->start(tensor->in + (my_begin(k) - tensor->at));
  const std::size_t chunk = cut_.begin(k), begin = my_begin(k), end = my_end(k);
  unsigned char* result = places_[k - reduced_];
  unsigned char* wide = hook_->wide();
  const void* source[memory::most_ranks];
  stream_->pieces(begin, end, [&](const Item& item, std::size_t from, std::size_t at, std::size_t bytes) {
    for (int r = 0; r < rings_.ranks; ++r)
      source[r] = r == rings_.me ? item.in + from : rings_.node.ring(r, base_ + k) + (at - chunk);
    unsigned char* to = wide ? wide : result + (at - begin);
    const ReduceFn reduce = item.wide.element_bytes ? item.wide.part : item.reduce;
    reduce(source, rings_.ranks, to, bytes / item.element_bytes, Scale{item.scale.before, 1, 1, item.scale.weights});
    item.look(from, bytes, to, source, rings_.ranks, item.part_dtype());
    if (wide) wide += item.wire_bytes(bytes);
  });
  hook_->start(result);
}

void ShmAllreduce::publish(std::uint64_t k) {
  if (hook_) {
    const unsigned char* result = places_.front();
    places_.pop_front();
    const std::size_t begin = my_begin(k);
    if (!tensor_of(k))  // copies the result of all nodes to this rank's tensor
      stream_->pieces(begin, my_end(k), [&](const Item& item, std::size_t from, std::size_t at, std::size_t bytes) {
        std::memcpy(item.out + from, result + (at - begin), bytes);
      });
  }
  rings_.post(&Progress::reduced, base_ + k + 1);
}

bool ShmAllreduce::result_again(std::size_t begin, std::size_t end, unsigned char* to) const {
  const std::uint64_t chunks = cut_.chunks();
  std::uint64_t k = chunks - std::min<std::uint64_t>(chunks, 2);  // the result ring has two buffers
  if (rings_.ranks < 2 || k == chunks || rings_.next != base_ + chunks || begin < cut_.begin(k)) return false;
  for (; k < chunks && begin < end; ++k) {
    const std::size_t until = std::min(end, cut_.end(k));
    if (begin >= until) continue;
    std::memcpy(to, rings_.node.result(base_ + k) + (begin - cut_.begin(k)), until - begin);
    to += until - begin;
    begin = until;
  }
  return begin == end;
}

void ShmAllreduce::copy_out(std::uint64_t k) {
  const unsigned char* result = rings_.node.result(base_ + k);
  const std::size_t chunk = cut_.begin(k);
  auto get = [&](std::size_t begin, std::size_t end) {
    stream_->pieces(begin, end, [&](const Item& item, std::size_t from, std::size_t at, std::size_t bytes) {
      if (streaming_out_)
        copy_streaming(item.out + from, result + (at - chunk), bytes);
      else
        std::memcpy(item.out + from, result + (at - chunk), bytes);
    });
  };
  get(chunk, my_begin(k));
  get(my_end(k), cut_.end(k));
}

}  // namespace hvd::ops
