#include "core/set/set_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace hvd::core {

std::shared_ptr<const SetInfo> SetTable::find(int id) const {
  std::lock_guard lock(mutex_);
  const auto it = living_.find(id);
  return it == living_.end() ? nullptr : it->second;
}

int SetTable::duplicate(const std::vector<int>& ranks) const {
  const auto sorted = [](std::vector<int> r) {
    std::sort(r.begin(), r.end());
    return r;
  };
  const std::vector<int> wanted = sorted(ranks);
  std::lock_guard lock(mutex_);
  for (const auto& [id, known] : living_)
    if (known->ranks.size() == wanted.size() && sorted(known->ranks) == wanted) return id;
  return -1;
}

std::vector<std::shared_ptr<const SetInfo>> SetTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const SetInfo>> known;
  for (const auto& [id, k] : living_) known.push_back(k);
  return known;
}

SetInfo SetTable::next(std::vector<int> ranks, int my_rank, int streams) {
  std::lock_guard lock(mutex_);
  SetInfo k;
  k.id = ++last_id_;
  // Streams are used in turn, since MPI has few.  When a removed set's stream is used again, the set's last messages
  // have long arrived.  TCP never uses a stream again.
  for (int tries = 1;; ++tries) {
    if (tries == streams)
      throw Error(Code::unavailable, "process sets", "there can be no more than " + std::to_string(streams - 1));
    last_stream_ = last_stream_ % (streams - 1) + 1;
    if (std::none_of(living_.begin(), living_.end(), [&](const auto& s) { return s.second->stream == last_stream_; }))
      break;
  }
  k.stream = last_stream_;
  const auto mine = std::find(ranks.begin(), ranks.end(), my_rank);
  if (mine != ranks.end()) k.rank = static_cast<int>(mine - ranks.begin());
  k.ranks = std::move(ranks);
  return k;
}

void SetTable::insert(SetInfo set) {
  std::lock_guard lock(mutex_);
  const int id = set.id;
  living_[id] = std::make_shared<const SetInfo>(std::move(set));
}

std::shared_ptr<const SetInfo> SetTable::erase(int id) {
  std::lock_guard lock(mutex_);
  const auto it = living_.find(id);
  if (it == living_.end()) return nullptr;
  auto known = std::move(it->second);
  living_.erase(it);
  return known;
}

}  // namespace hvd::core
