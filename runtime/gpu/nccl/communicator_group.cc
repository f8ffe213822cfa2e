#include "gpu/nccl/communicator_group.h"

#include <utility>

namespace hvd::nccl {

namespace {

/// With the end of communicators, which takes milliseconds unless the kernels of other sets are in the way (see
/// CommunicatorAbort).
constexpr std::chrono::milliseconds patience{500};

}  // namespace

CommunicatorGroup::CommunicatorGroup(std::unique_ptr<Communicator> whole, int slots, const NodeLayout& nodes,
                                     int blocks)
    : count_(static_cast<std::size_t>(slots)), nodes_(nodes), blocks_(blocks) {
  all_.push_back(std::move(whole));
}

/// All of them from the first, in one order on all ranks.  A split may fail: then the set does.
void CommunicatorGroup::make_next() {
  Communicator& whole = *all_.front();
  const std::size_t n = all_.size();
  if (n < count_)
    all_.push_back(whole.split(0, whole.rank(), whole.size(), blocks_));
  else if ((n - count_) % 2 == 0)
    all_.push_back(whole.split(nodes_.node, nodes_.local, nodes_.ranks, blocks_));
  else
    all_.push_back(whole.split(nodes_.local, nodes_.node, nodes_.count, blocks_));
}

bool CommunicatorGroup::made() {
  if (!slots_.empty()) return true;
  for (const auto& c : all_)
    if (!c->ready()) return false;
  if (all_.size() < count_ * (nodes_.any() ? 3 : 1)) {
    make_next();
    return false;
  }
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t at = count_ + 2 * i;
    slots_.push_back(
        {all_[i].get(), nodes_.any() ? all_[at].get() : nullptr, nodes_.any() ? all_[at + 1].get() : nullptr});
  }
  return true;
}

void CommunicatorGroup::watch() {
  for (const auto& c : all_) c->ready();
}

std::unique_ptr<Communicator> CommunicatorGroup::split(int color, int rank, int size, int blocks) {
  return all_.front()->split(color, rank, size, blocks);
}

/// The first one first: what is being made of it ends with it.
void CommunicatorGroup::abort() noexcept {
  for (const auto& c : all_) c->abort();
  const auto until = std::chrono::steady_clock::now() + patience;
  for (const auto& c : all_) c->ended(until);
}

}  // namespace hvd::nccl
