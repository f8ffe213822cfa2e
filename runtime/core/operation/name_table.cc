#include "core/operation/name_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace hvd::core {

void NameEntry::describe(const Signature& s, int rank, int size) {
  std::memcpy(static_cast<void*>(&signature), &s, s.bytes());
  bytes = static_cast<std::size_t>(s.payload_bytes());
  elements = static_cast<std::size_t>(s.elements());
  group_size = s.group_size;
  fills = s.operation() != Kind::broadcast || s.root == rank;
  reduce = s.operation() == Kind::allreduce ? ops::reducer(s.type(), s.reduction()) : nullptr;
  scale = {s.before, s.after, s.reduction() == Reduce::average ? size : 1};
  track = {};
}

NameEntry& NameTable::entry(std::string_view name) {
  auto it = entries_.find(name);
  if (it == entries_.end()) {
    it = entries_.emplace(name, std::make_unique<NameEntry>()).first;
    it->second->name = name;
  }
  return *it->second;
}

NameEntry* NameTable::find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : it->second.get();
}

/// Like entry(), but faster.  Programs submit their names in the same order again and again.  So the function first
/// tries the name that followed last time.
NameEntry& NameTable::following(std::string_view name) {
  if (last_ && last_->after && last_->after_epoch == epoch_ && last_->after->name == name)
    return *(last_ = last_->after);
  NameEntry& e = entry(name);
  if (last_) {
    last_->after = &e;
    last_->after_epoch = epoch_;
  }
  return *(last_ = &e);
}

/// following(), and fetches the entry that came some turns later the last time.
NameEntry& NameTable::next(std::string_view name) {
  NameEntry& e = following(name);
  NameEntry* const before = std::exchange(recent_[turn_++ % read_ahead], &e);
  if (before && before->ahead != &e) {
    before->ahead = &e;
    before->ahead_name = e.name.data();
  }
  fetch(e.ahead, 2);
  fetch(e.ahead_name, 1);
  return e;
}

std::string NameTable::make_name(const SignatureHead& s) {
  return negotiate::made_name(name_of(s.operation()), made_names_[s.kind]++);
}

void NameTable::restart_made_names() { std::fill(std::begin(made_names_), std::end(made_names_), 0); }

std::span<NameEntry* const> NameTable::take(std::span<const CheckedRequest> requests) {
  taken_.clear();
  std::array<std::uint64_t, num_kinds> made;
  std::copy(std::begin(made_names_), std::end(made_names_), made.begin());
  for (const CheckedRequest& p : requests) {
    NameEntry& e = next(p.name.empty() ? make_name(p.signature) : p.name);
    if (!e.in_flight.load(std::memory_order_acquire)) {
      e.in_flight.store(true, std::memory_order_relaxed);
      taken_.push_back(&e);
      continue;
    }
    const bool twice = std::find(taken_.begin(), taken_.end(), &e) != taken_.end();
    const std::string name = e.name;
    for (NameEntry* t : taken_) {
      t->in_flight.store(false, std::memory_order_relaxed);
      forget_unknown(*t);
    }
    taken_.clear();
    std::copy(made.begin(), made.end(), made_names_);
    if (twice) throw Error(Code::usage, "'" + name + "'", "the same name twice in one call");
    throw Error(Code::usage, "'" + name + "'", "an operation of this name is already under way on this rank",
                "wait for it, or give each its own name");
  }
  return taken_;
}

NameEntry& NameTable::assign(std::uint32_t id, std::uint32_t slot, std::string_view name) {
  NameEntry& e = entry(name);
  e.id = id;
  e.slot = slot;
  e.round = 0;
  e.has_id = true;
  if (id >= by_id_.size()) by_id_.resize(id + 1);
  by_id_[id] = &e;
  return e;
}

NameEntry* NameTable::release_id(std::uint32_t id) {
  NameEntry* const e = id < by_id_.size() ? std::exchange(by_id_[id], nullptr) : nullptr;
  if (e) e->has_id = false;
  return e;
}

void NameTable::forget(const NameEntry& e) {
  last_ = nullptr;
  recent_ = {};
  ++epoch_;
  entries_.erase(entries_.find(e.name));
}

void NameTable::forget_unknown(const NameEntry& e) {
  if (e.in_flight.load() || e.has_id) return;
  forget(e);
}

std::string NameTable::some_in_flight() const {
  std::string text;
  int count = 0;
  for (const auto& [name, e] : entries_) {
    if (!e->in_flight.load()) continue;
    if (++count > 5) continue;
    text += (text.empty() ? "" : ", ") + name;
  }
  if (count > 5) text += ", and " + std::to_string(count - 5) + " more";
  return text;
}

const NameEntry* NameTable::first_in_flight(const std::function<bool(const NameEntry&)>& counts) const {
  const NameEntry* first = nullptr;
  for (const auto& [name, e] : entries_)
    if (e->in_flight.load() && (!first || name < first->name) && counts(*e)) first = e.get();
  return first;
}

}  // namespace hvd::core
