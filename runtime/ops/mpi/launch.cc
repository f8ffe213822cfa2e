#include "ops/mpi/launch.h"

#include <numeric>

namespace hvd::mpi {

using nccl::Tensor;

Launch::Launch(const nccl::Place& place, transport::Transport& transport, std::vector<Tensor> tensors)
    : Work(place, transport.size(), std::move(tensors)), transport_(transport), messages_(transport) {}

bool Launch::step() {
  if (done()) return false;
  const cuda::Current current(place_.gpu.driver(), place_.gpu.context());
  const std::size_t before = messages_.under_way();
  switch (state_) {
    case State::fresh:
      start();
      return true;
    case State::packing:
      if (!behind_->reached()) return false;
      post(0);
      state_ = State::first;
      return true;
    case State::first:
      if (!messages_.done()) break;
      after_first();
      return true;
    case State::reducing:
      if (!behind_->reached()) return false;
      post(1);
      state_ = State::second;
      return true;
    case State::second:
      if (!messages_.done()) break;
      end();
      return true;
  }
  return messages_.under_way() != before;
}

/// Memory for the results, and all that has to be there before the first message.
void Launch::start() {
  for (Tensor& t : tensors_) {
    std::int64_t rows = 0;
    if (t.kind == Kind::allgather || t.kind == Kind::alltoall)
      rows = std::accumulate(t.received.begin(), t.received.end(), std::int64_t{0});
    else if (t.kind == Kind::reducescatter)
      rows = t.rows / size() + (transport_.rank() < t.rows % size() ? 1 : 0);
    else
      continue;
    t.result = place_.gpu.allocate(static_cast<std::size_t>(rows) * t.row_bytes, place_.stream);
  }
  std::size_t bytes = 0;
  fused_ = nccl::fuse(tensors_, size(), place_.means, &bytes, 1, nccl::Alone::none);
  plan_ = plan(tensors_, fused_, bytes, transport_.rank(), size(), place_.means);
  if (plan_.bytes > 0) buffer_ = place_.buffer.of(plan_.bytes, place_.stream, true);
  begin();
  behind_ = place_.gpu.mark(place_.stream);
  state_ = State::packing;
}

/// Receives first, so that what comes finds its place.
void Launch::post(std::size_t round) {
  const std::vector<Letter>& letters = plan_.rounds[round];
  auto at = [this](const Letter& l) { return reinterpret_cast<unsigned char*>(buffer_ + l.at); };
  for (const Letter& l : letters)
    if (!l.out) messages_.receive(l.peer, at(l), l.bytes);
  for (const Letter& l : letters)
    if (l.out) messages_.send(l.peer, at(l), l.bytes);
}

void Launch::after_first() {
  reduce();
  if (plan_.rounds[1].empty()) {
    end();
    return;
  }
  behind_ = place_.gpu.mark(place_.stream);
  state_ = State::reducing;
}

void Launch::reduce() {
  for (const Reduction& r : plan_.reductions) {
    auto at = [this](std::size_t offset) { return reinterpret_cast<unsigned char*>(buffer_ + offset); };
    const cuda::Parts parts{at(r.mine),
                            at(r.others),
                            r.stride,
                            static_cast<std::uint32_t>(size()),
                            static_cast<std::uint32_t>(transport_.rank()),
                            r.elements};
    place_.gpu.combine(r.element, r.how, parts, place_.stream);
  }
}

void* Launch::memory_of(const Move& m, bool gather) const {
  const Tensor& t = tensors_[m.tensor];
  if (gather && t.absent) return nullptr;
  void* base = t.result ? reinterpret_cast<void*>(t.result) : t.out;
  if (gather) base = t.in ? const_cast<void*>(t.in) : t.out;
  if (!gather && t.kind == Kind::broadcast && t.root == transport_.rank() && base == t.in)
    return nullptr;  // a broadcast's root has it already
  return base ? static_cast<unsigned char*>(base) + m.offset : nullptr;
}

/// What has joined counts as zeros, and gets nothing.
void Launch::move_all(const std::vector<Move>& moves, bool gather) {
  const auto& driver = place_.gpu.driver();
  std::vector<Slice> slices;
  Change change;
  for (const Move& m : moves) {
    const DType dtype = tensors_[m.tensor].dtype;
    void* const memory = memory_of(m, gather);
    if (!memory) {
      const std::size_t bytes = m.wide ? m.bytes / element_bytes(dtype) * sizeof(float) : m.bytes;
      if (gather) driver.check(driver.fill(buffer_ + m.at, 0, bytes, place_.stream), "cuMemsetD8Async");
      continue;
    }
    const Change own{dtype, m.factor, m.wide};
    const bool same = change.none()
                          ? own.none()
                          : own.dtype == change.dtype && own.factor == change.factor && own.wide == change.wide;
    if (!same) {
      move(slices, change, gather);
      slices.clear();
    }
    change = own;
    slices.push_back({memory, m.at, m.bytes});
  }
  move(slices, change, gather);
}

}  // namespace hvd::mpi
