#include "gpu/nccl/communicator/communicator_group.h"

#include <algorithm>
#include <utility>

namespace hvd::nccl {

CommunicatorGroup::CommunicatorGroup(std::function<std::shared_ptr<Communicator>()> root, const NodeLayout& nodes,
                                     const Form& form)
    : root_(std::move(root)), nodes_(nodes), form_(form) {}

void CommunicatorGroup::add(std::shared_ptr<Communicator> made) {
  std::lock_guard lock(mutex_);
  all_.push_back(std::move(made));
  if (aborted_) all_.back()->abort();
}

/// Begins to make the next communicator.  All splits are made from the root, in the same order on all ranks.  If a
/// split fails, the set fails.  Without `blocking`, the first slot uses the root.
void CommunicatorGroup::make_next() {
  if (all_.empty()) return add(root_());
  Communicator& root = *all_.front();
  const std::size_t count = static_cast<std::size_t>(form_.slots), n = all_.size() - moving(0);
  const int blocks = form_.blocks;
  if (n < count)
    add(root.split(0, {root.rank(), root.size(), blocks, form_.blocking}));
  else if ((n - count) % 2 == 0)
    add(root.split(nodes_.node, {nodes_.local, nodes_.ranks, blocks, form_.blocking}));
  else
    add(root.split(nodes_.local, {nodes_.node, nodes_.count, blocks, form_.blocking}));
}

bool CommunicatorGroup::made() {
  if (complete()) return all_.front()->ready();
  for (const auto& c : all_)
    if (!c->ready()) return false;
  const std::size_t count = static_cast<std::size_t>(form_.slots);
  if (all_.size() < moving(count * (nodes_.any() ? 3 : 1)) || all_.empty()) {
    make_next();
    return false;
  }
  if (begun_windows_ < form_.windows.size()) {
    all_[moving(begun_windows_)]->make_window(form_.windows[begun_windows_]);
    ++begun_windows_;
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = moving(count + 2 * i);
    slots_.push_back(
        {all_[moving(i)].get(), nodes_.any() ? all_[at].get() : nullptr, nodes_.any() ? all_[at + 1].get() : nullptr});
  }
  complete_.store(true, std::memory_order_release);
  return true;
}

std::unique_ptr<Communicator> CommunicatorGroup::split(int color, const Communicator::Subset& part) {
  return all_.front()->split(color, part);
}

bool CommunicatorGroup::ended() {
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  return aborted_ && std::all_of(all_.begin(), all_.end(), [now](const auto& c) { return c->ended(now); });
}

std::size_t CommunicatorGroup::windows() const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.whole->has_window(); }));
}

void CommunicatorGroup::watch(bool at_rest) {
  if (!complete()) return;
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (at_rest || (form_.blocking && i > 0)) all_[i]->check_health();
}

/// Aborts the root first: the root's abort also ends a communicator that NCCL still splits from it.  Usually
/// communicators end within milliseconds, unless kernels of other sets are in the way (CommunicatorAbort).
void CommunicatorGroup::abort(std::chrono::milliseconds limit) noexcept {
  std::lock_guard lock(mutex_);
  if (std::exchange(aborted_, true)) return;
  for (const auto& c : all_) c->abort();
  const auto until = std::chrono::steady_clock::now() + limit;
  for (const auto& c : all_) c->ended(until);
}

}  // namespace hvd::nccl
