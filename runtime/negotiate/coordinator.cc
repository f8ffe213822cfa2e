#include "negotiate/coordinator.h"

#include <algorithm>
#include <map>

#include "negotiate/idset.h"

namespace hvd::negotiate {
namespace {

/// Names that may keep an id before any name has come again.
constexpr std::uint32_t first_limit = 1024;

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Publish publish)
    : options_(std::move(options)), publish_(std::move(publish)), limit_(std::min(options_.capacity, first_limit)) {}

void Coordinator::publish(Command command, ByteWriter& w) {
  ++published_;
  publish_(command, w.bytes());
}

void Coordinator::grouped_candidate(std::uint32_t id) {
  const TensorInfo& t = tensors_[id];
  Group& group = groups_[t.group];
  group.ready.push_back(id);
  if (group.ready.size() < t.group_size) return;
  for (const std::uint32_t ready : group.ready) ids_[ready].chosen = true;
  candidates_.insert(candidates_.end(), group.ready.begin(), group.ready.end());
  groups_.erase(t.group);
}

void Coordinator::record(const RankSet& ranks, std::uint64_t executed, const Signature& signature,
                         const std::string& name) {
  if (signature.operation() == Kind::join) {
    join(ranks, signature.root == has_joined);
    return;
  }
  if (!poisoned_.empty() && outdated(executed, signature, name)) return;
  if (auto known = id_of_.find(name); known != id_of_.end()) evict(known->second);
  Announcements& claims = announced_[name];
  claims.add(signature, ranks, executed, failed_);
  if (here(claims).count() < options_.ranks) return;
  std::vector<Announcement> all = claims.take();
  announced_.erase(name);
  settle(name, all);
}

void Coordinator::settle(const std::string& name, std::vector<Announcement>& claims) {
  if (claims.size() == 1) {
    const Announcement& all = claims.front();
    const RankSet absent = all.ranks.complement(options_.ranks);
    const std::string text = absent.empty() ? "" : cannot_stand_in(name, all.signature, absent);
    if (text.empty())
      agreed_.emplace_back(name, all.signature);
    else
      fail(HVD_MISMATCH, name, claims, text);
    return;
  }
  std::vector<Announcement> sorted = claims;
  for (Announcement& c : sorted) c.ranks = c.ranks.mapped(options_.world_ranks);
  std::sort(sorted.begin(), sorted.end(),
            [](const Announcement& a, const Announcement& b) { return a.ranks.first() < b.ranks.first(); });
  fail(HVD_MISMATCH, name, claims, disagreement(name, sorted));
}

void Coordinator::fail(std::uint32_t code, const std::string& name, const std::vector<Announcement>& claims,
                       const std::string& text) {
  ByteWriter w;
  w.put(code).put(std::uint32_t{0}).text(name).raw(text);
  publish(Command::fail, w);
  failed_ = published_;
  std::map<std::uint64_t, std::uint32_t> groups;
  for (const Announcement& c : claims)
    if (c.signature.group_size) groups[c.signature.group] = c.signature.group_size;
  for (const auto& [group, size] : groups)
    if (const auto done = poisoned_.find(group); done == poisoned_.end() || done->second.cause < failed_)
      fail_group(group, size, text);
}

void Coordinator::refuse_crossed(const std::vector<std::string>& names) {
  if (!offered_.empty()) {  // the caller comes again
    wants_end_of_offer_ = true;
    return;
  }
  std::vector<Announcement> all;
  bool evicted = false;
  for (const std::string& name : names) {
    if (const auto known = id_of_.find(name); known != id_of_.end()) {
      evict(known->second);  // ranks that have submitted the operation send a record
      evicted = true;
    } else if (const auto found = announced_.find(name); found != announced_.end()) {
      all.insert(all.end(), found->second.all.begin(), found->second.all.end());
    }
  }
  int ranks = 0;
  for (Announcement& c : all) ranks += c.ranks.count(), c.ranks = c.ranks.mapped(options_.world_ranks);
  if (evicted || ranks < options_.ranks) return;  // more records will come
  std::sort(all.begin(), all.end(),
            [](const Announcement& a, const Announcement& b) { return a.ranks.first() < b.ranks.first(); });
  const std::string text = disagreement(names.front().substr(names.front().find('.') + 1), all);
  for (const std::string& name : names) {
    const auto found = announced_.find(name);
    if (found == announced_.end()) continue;  // failed with its group
    const std::vector<Announcement> claims = found->second.take();
    announced_.erase(found);
    fail(HVD_MISMATCH, name, claims, text);
  }
}

/// Says why the joined ranks @p absent cannot take part with zeros; empty: they can.
std::string Coordinator::cannot_stand_in(const std::string& name, const Signature& s, const RankSet& absent) const {
  const std::string who = absent.mapped(options_.world_ranks).text(16);
  const std::string what = std::string(name_of(s.operation())) + " '" + name + "': " + who + " joined";
  if (s.operation() == Kind::broadcast && absent.contains(s.root)) return what + ", the root among them";
  if (s.operation() == Kind::set_change) return what + ", and process sets change only while all take part";
  const bool reduces = is_among(s.operation(), reducing_kinds);
  if (reduces && (s.reduction() == Reduce::min || s.reduction() == Reduce::max || s.reduction() == Reduce::product))
    return what + ", and a zero in place of their data would change the result of " + name_of(s.reduction());
  return {};
}

void Coordinator::join(const RankSet& ranks, bool has) {
  if (!joining_) {
    joining_ = true;
    // Operations that are ready on all ranks run.  Ranks announce all others again, by records.
    for (std::uint32_t id = 0; id < ids_.size(); ++id)
      if (ids_[id].live && !ids_[id].chosen) evict(id);
    ByteWriter nothing;
    publish(Command::joining, nothing);
  }
  if (!has) return;
  joined_.merge(ranks);
  last_joined_ = ranks.first();
  std::vector<std::string> complete;
  for (const auto& [name, claims] : announced_)
    if (here(claims).count() == options_.ranks) complete.push_back(name);
  std::sort(complete.begin(), complete.end());
  for (const std::string& name : complete) {
    const auto found = announced_.find(name);
    if (found == announced_.end()) continue;  // failed with its group
    std::vector<Announcement> all = found->second.take();
    announced_.erase(found);
    settle(name, all);
  }
}

void Coordinator::fail_group(std::uint64_t group, std::uint32_t size, const std::string& text) {
  std::vector<std::string> names;  // of the group's operations that the coordinator knows
  for (std::uint32_t id = 0; id < ids_.size(); ++id)
    if (ids_[id].live && ids_[id].grouped && tensors_[id].group == group) {
      names.push_back(tensors_[id].name);
      evict(id);
    }
  groups_.erase(group);
  for (auto it = announced_.begin(); it != announced_.end();) {
    const std::size_t before = it->second.all.size();
    it->second.drop_group(group);
    if (it->second.all.size() != before) names.push_back(it->first);
    it = it->second.all.empty() ? announced_.erase(it) : std::next(it);
  }
  std::erase_if(agreed_, [&](const auto& a) { return a.second.in_group(group); });
  ByteWriter w;
  w.put(std::uint32_t{HVD_MISMATCH}).put(group).raw(text);
  publish(Command::fail_group, w);
  poisoned_[group] = {published_, failed_, size, text};
  failures_.push_back({published_, failed_, group, {}});
  std::sort(names.begin(), names.end());
  outdate(names, group);
  forget_old_failures();
}

/// Forgets the oldest failures while there are too many.  Keeps a failure until all members have carried out its
/// command.
void Coordinator::forget_old_failures() {
  while (failures_.size() > 1 && failures_.front().command <= executed_ &&
         (failures_.size() > most_failures || outdated_.size() > most_outdated)) {
    const FailureRecord& oldest = failures_.front();
    for (const std::string& name : oldest.names)
      if (const auto known = outdated_.find(name); known != outdated_.end() && known->second == oldest.cause)
        outdated_.erase(known);
    if (const auto known = poisoned_.find(oldest.group);
        known != poisoned_.end() && known->second.command == oldest.command)
      poisoned_.erase(known);
    failures_.pop_front();
  }
}

/// @p group has failed.  Ends other ranks' operations under @p names that are outside the group and older than the
/// failure.
void Coordinator::outdate(const std::vector<std::string>& names, std::uint64_t group) {
  constexpr std::size_t most = 16 << 10;  // bytes of names in one command
  const Failure failure = poisoned_.at(group);
  std::vector<std::string> told;
  std::map<std::uint64_t, std::uint32_t> others;  // groups that lose an operation
  std::string list;
  std::uint32_t count = 0;
  auto tell = [&] {
    ByteWriter w;
    w.put(std::uint32_t{HVD_MISMATCH}).put(failure.cause).put(group).put(failure.size).put(count);
    w.raw(list).raw(failure.text);
    publish(Command::outdate, w);
    list.clear();
    count = 0;
  };
  for (const std::string& name : names) {
    std::uint64_t& since = outdated_[name];
    if (since >= failure.cause) continue;
    since = failure.cause;
    told.push_back(name);
    if (auto known = id_of_.find(name); known != id_of_.end()) evict(known->second);
    if (auto found = announced_.find(name); found != announced_.end()) {
      found->second.drop_before(failure.cause, group, [&](const Announcement& c) {
        if (c.signature.group_size) others[c.signature.group] = c.signature.group_size;
      });
      if (found->second.all.empty()) announced_.erase(found);
    }
    ByteWriter w;
    list += w.text(name).bytes();
    if (++count; list.size() >= most) tell();
  }
  if (count > 0) tell();
  if (!told.empty()) failures_.push_back({failure.command, failure.cause, group, std::move(told)});
  for (const auto& [other, size] : others)
    if (poisoned_.find(other) == poisoned_.end() || poisoned_.at(other).cause < failure.cause)
      fail_group(other, size, failure.text);
}

/// True if the announced operation has already ended on its ranks, because a group failed meanwhile.  The group is the
/// operation's own, or one that contains its name on other ranks.
bool Coordinator::outdated(std::uint64_t executed, const Signature& signature, const std::string& name) {
  if (signature.group_size)
    if (auto own = poisoned_.find(signature.group); own != poisoned_.end() && executed < own->second.command) {
      outdate({name}, signature.group);
      forget_old_failures();
      return true;
    }
  const auto since = outdated_.find(name);
  if (since == outdated_.end() || executed >= since->second) return false;
  if (signature.group_size)
    fail_group(signature.group, signature.group_size, "'" + name + "': its group failed on other ranks");
  return true;
}

void Coordinator::gone(int rank, std::uint32_t code, const std::string& text) {
  offered_.clear();  // all operations end with an error, so no rank needs the answer
  ByteWriter w;
  w.put(code).put(static_cast<std::uint32_t>(rank)).raw(text);
  publish(Command::gone, w);
}

void Coordinator::tune(const TunedSettings& settings) {
  if (!offered_.empty()) {
    tune_after_offer_ = settings;
    return;
  }
  options_.fusion_bytes = settings.fusion_bytes;
  options_.hold_ns = settings.hold_ns;
  ByteWriter w;
  put_settings(w, settings);
  publish(Command::tune, w);
}

/// The body of a `batch` command with these ids: ascending.
std::string Coordinator::batch_body(std::span<const std::uint32_t> ids, bool eager) {
  for (const std::uint32_t id : ids) batch_[id / 64] |= 1ull << (id % 64);
  ByteWriter w;
  w.put(eager ? batch_eager : 0u).put(static_cast<std::uint32_t>(ids.size()));
  const std::size_t words = ids.back() / 64 + 1;
  put_ids(w, {batch_.data(), words}, ids.front() / 64);
  std::fill_n(batch_.begin() + ids.front() / 64, words - ids.front() / 64, 0);
  return std::move(w.bytes());
}

void Coordinator::publish_batch(const std::vector<std::uint32_t>& ids, bool eager) {
  constexpr std::size_t most = 8192;  // ids in one command: it must fit the command ring
  std::size_t at = 0;
  while (at < ids.size()) {
    std::int64_t bytes = 0;
    std::size_t end = at;
    last_batch_ = published_ + 1;
    for (; end < ids.size() && end - at < most; ++end) {
      Id& id = ids_[ids[end]];
      if (end != at && bytes + id.bytes > options_.fusion_bytes) break;
      bytes += id.bytes;
      id.used = last_batch_;
      id.fresh = id.parts = false;
    }
    ByteWriter w;
    w.bytes() = batch_body({ids.data() + at, end - at}, eager);
    publish(Command::batch, w);
    under_way_.push_back(published_);
    at = end;
  }
}

/// True if only tensors on GPUs are ready, and so few that the host's cost per tensor is high.
bool Coordinator::few_on_gpu() const {
  constexpr std::size_t enough = 16;
  return !candidates_.empty() && candidates_.size() < enough &&
         std::all_of(candidates_.begin(), candidates_.end(), [this](std::uint32_t id) { return ids_[id].on_gpu; });
}

/// True if ready operations must wait for more.  While a batch is under way, operations gather for the next one until
/// they have fusion_bytes, or for hold_ns.  While a second batch waits already, holding costs nothing.
bool Coordinator::hold(std::int64_t now_ns) {
  if (under_way_.empty() && !behind_gpu_) return false;
  if (under_way_.size() > 1) return true;
  std::int64_t bytes = 0;
  for (std::uint32_t id : candidates_) bytes += ids_[id].bytes;
  if (held_since_ == 0) held_since_ = now_ns;
  return bytes < options_.fusion_bytes && now_ns - held_since_ < options_.hold_ns;
}

/// @p any: decide() has published a command already.  Returns true if any command was published.
bool Coordinator::decide_at(std::int64_t now_ns, bool any) {
  if (candidates_.empty() && agreed_.empty() && all_joined()) {
    ByteWriter w;
    w.put(static_cast<std::uint32_t>(last_joined_));
    publish(Command::joined, w);
    joining_ = false;
    joined_ = {};
    return true;
  }
  if (candidates_.empty() || hold(now_ns)) return any;
  held_since_ = 0;
  if (!std::is_sorted(candidates_.begin(), candidates_.end())) std::sort(candidates_.begin(), candidates_.end());
  eager_.clear(), streamed_.clear();
  std::int64_t eager_bytes = 0;
  bool passing = false;
  for (std::uint32_t id : candidates_) {
    Id& i = ids_[id];
    i.chosen = false;
    passing |= i.passing;
    if (i.on_gpu) next_on_gpu_ = now_ns + options_.hold_ns;
    if (eager_now(i)) {
      eager_.push_back(id);
      eager_bytes += i.bytes;
    } else {
      streamed_.push_back(id);
    }
  }
  candidates_.clear();
  none_to_evict_ = false;
  // In an eager batch each rank reads the slots of all ranks.  From eager_work on slices are cheaper.
  if (eager_bytes * options_.ranks > options_.eager_work) {
    streamed_.insert(streamed_.end(), eager_.begin(), eager_.end());
    std::sort(streamed_.begin(), streamed_.end());
    eager_.clear();
  }
  if (!eager_.empty()) publish_batch(eager_, true);
  if (!streamed_.empty()) publish_batch(streamed_, false);
  // An id ends with its batch in three cases: caching is off, ranks join, or the name does not come again.
  const bool forget = options_.capacity == 0 || joining_;
  if (!forget && !passing) return true;
  for (auto* list : {&eager_, &streamed_})
    for (std::uint32_t id : *list)
      if (forget || ids_[id].passing) evict(id);
  return true;
}

}  // namespace hvd::negotiate
