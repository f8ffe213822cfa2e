/// @file stall_check.cc — the stall check: which ranks keep the others waiting.
///
/// It costs nothing until a rank waits.  A rank that has waited for a while rings the doorbell of its node's leader,
/// and the leader then checks again and again until no operation is incomplete.  Leaders report upwards which ranks
/// have announced an operation; merged, these stay a few runs of ranks.  The ranks not among them are missing.
#include <algorithm>
#include <cstdio>
#include <map>

#include "common/log.h"
#include "core/engine.h"
#include "core/leader.h"
#include "memory/futex.h"
#include "negotiate/command.h"
#include "negotiate/idset.h"
#include "wire/link.h"
#include "wire/stalls.h"

namespace hvd::core {

using negotiate::Command;

namespace {

/// How often a leader reports to its parent: a fourth of the time after which the coordinator warns, within limits.
std::int64_t report_every(std::int64_t warn_ns) {
  return std::clamp<std::int64_t>(warn_ns / 4, 50'000'000, 1'000'000'000);
}

constexpr std::int64_t tell_after_ns = 1'000'000'000;  ///< the guard and hvdrun are told of a wait this long

/// A report from another leader is valid for this many times report_every().  Leaders repeat their reports while the
/// wait lasts, and a batch ends it sooner.
constexpr int report_lasts = 20;

}  // namespace

std::vector<wire::Stall> merge_stalls(std::vector<StallReport> reports) {
  std::map<std::string, std::vector<const StallReport*>> groups;  // by who is missing
  std::sort(reports.begin(), reports.end(), [](const StallReport& a, const StallReport& b) { return a.name < b.name; });
  for (const StallReport& r : reports) groups[r.missing.text(r.missing.count())].push_back(&r);
  std::vector<wire::Stall> stalls;
  for (const auto& [missing, group] : groups) {
    if (stalls.size() == wire::most_stalls) break;
    const StallReport& first = *group[0];
    std::int64_t longest = 0;
    for (const StallReport* r : group) longest = std::max(longest, r->waited_ns);
    wire::Stall stall{first.name, static_cast<int>(group.size()), static_cast<double>(longest) / 1e9, {}, 0,
                      first.size};
    const int listed = std::min(static_cast<int>(wire::most_missing_ranks), first.missing.count());
    for (int rank = first.missing.first(); static_cast<int>(stall.missing.size()) < listed; ++rank)
      if (first.missing.contains(rank)) stall.missing.push_back(rank);
    stall.more = first.missing.count() - listed;
    stalls.push_back(std::move(stall));
  }
  return stalls;
}

/// What is incomplete as far as this leader knows.  On the coordinator that is all there is.
void Leader::collect_stalls(std::int64_t now_ns) {
  for (auto& [name, stall] : stalls_) stall.seen = false;
  auto note = [&](std::uint32_t id, const std::string& name, const negotiate::RankSet& here) {
    Stall& s = stalls_[name];
    if (s.since_ns == 0) s.since_ns = now_ns;
    if (!s.seen) s.here = {};
    s.seen = true;
    s.id = id;
    s.here.merge(here);
  };
  if (tree_) tree_->held(note);
  if (coordinator_)
    coordinator_->incomplete(
        [&](const std::string& name, const negotiate::RankSet& here) { note(negotiate::no_slot, name, here); });
  gather_.partial([&](std::uint32_t id, const std::vector<bool>& bits) {
    std::vector<int> here;
    for (std::size_t l = 0; l < bits.size(); ++l)
      if (bits[l]) here.push_back(world_.locals()[l]);
    const std::string* name = this->name(id);
    if (name && here.size() < bits.size()) note(id, *name, negotiate::RankSet::of(std::move(here)));
  });
  if (tree_ && coordinator_) {
    for (auto& [name, here] : tree_->take_waits()) notices_[name].push_back({now_ns, std::move(here)});
    const std::int64_t since = now_ns - report_lasts * report_every(stall_limits_.warn_ns);
    for (auto it = notices_.begin(); it != notices_.end();) {
      std::erase_if(it->second, [since](const StallNotice& t) { return t.at_ns < since; });
      for (const StallNotice& t : it->second) note(negotiate::no_slot, it->first, t.here);
      it = it->second.empty() ? notices_.erase(it) : std::next(it);
    }
  }
  std::erase_if(stalls_, [](const auto& s) { return !s.second.seen; });
}

const std::string* Leader::name(std::uint32_t id) const {
  if (tree_) return tree_->name(id);
  return coordinator_->live(id) ? &coordinator_->name(id) : nullptr;
}

/// The wait for the names of this command is over: a later wait for one of them counts from its own beginning.
void Leader::settled(Command type, std::string_view body) {
  auto forget = [this](const std::string& name) {
    stalls_.erase(name);
    notices_.erase(name);
  };
  if (type != Command::batch && type != Command::fail && type != Command::assign) return;
  negotiate::ByteReader r(body);  // all three begin with two numbers
  r.get<std::uint32_t>();
  r.get<std::uint32_t>();
  if (type == Command::batch) forget(negotiate::join_text);  // who has not joined works
  if (type == Command::batch)
    negotiate::get_ids(r, node_.geometry.words * 64, [&](std::uint32_t id) {
      if (const std::string* n = name(id)) forget(*n);
    });
  else if (type == Command::fail)
    forget(std::string(r.text()));
  else if (type == Command::assign)
    forget(std::string(r.rest()));
}

/// hvdrun is told of a wait that is longer than config's limit and than three steps: while one rank evaluates or writes
/// a checkpoint, the others rightly wait about that long.  But it is told no later than the warning.
std::int64_t Leader::worth_telling_ns() const {
  return std::min(std::max(stall_limits_.tell_ns, 3 * status_.median_step_ns()), stall_limits_.warn_ns);
}

/// Some ranks wait in one operation and all others in an operation of another kind under the same name, as in
/// hvd.allreduce(x, "a") and hvd.broadcast(x, "a").  Perhaps the ranks only run them in different order, so both are
/// refused only when the wait is worth telling.
/// A known gap: over several nodes a record waits in the tree until all ranks below have sent it, so the coordinator
/// does not have all of them, and such operations wait on.
void Leader::refuse_crossed(std::int64_t now_ns) {
  for (const auto& [name, stall] : stalls_) {
    const std::size_t dot = name.find('.');
    if (dot == std::string::npos || negotiate::is_made_name(name)) continue;
    std::vector<std::string> crossed;
    negotiate::RankSet all;
    int ranks = 0;
    for (int kind = 0; kind < num_kinds; ++kind) {
      const auto found = stalls_.find(name_of(static_cast<Kind>(kind)) + name.substr(dot));
      if (found == stalls_.end() || now_ns - found->second.since_ns < worth_telling_ns()) continue;
      crossed.push_back(found->first);
      all.merge(found->second.here);
      ranks += found->second.here.count();
    }
    if (crossed.size() > 1 && ranks == world_.size && all.count() == world_.size)
      return coordinator_->refuse_crossed(crossed);
  }
}

bool Leader::check_stalls(std::int64_t now_ns) {
  if (stall_limits_.warn_ns <= 0) return false;
  collect_stalls(now_ns);
  if (coordinator_) {
    refuse_crossed(now_ns);
    return warn_of_stalls(now_ns);
  }
  tell_stalls(now_ns);
  return !stalls_.empty();
}

/// To the parent: what has waited for a while, the oldest first, a limited number of them.
void Leader::tell_stalls(std::int64_t now_ns) {
  constexpr int most = 64;
  const std::int64_t every = report_every(stall_limits_.warn_ns);
  int told = 0;
  for (auto& [name, s] : stalls_) {
    if (now_ns - s.since_ns < every || (s.told_ns && now_ns - s.told_ns < every)) continue;
    if (++told > most) break;
    s.told_ns = now_ns;
    tree_->waits(s.id, name, s.here);
  }
}

void Leader::long_waits(std::int64_t now_ns, std::vector<StallReport>& to) const {
  if (!coordinator_) return;
  for (const auto& [name, s] : stalls_) {
    const negotiate::RankSet missing = s.here.complement(world_.size);
    if (now_ns - s.since_ns < worth_telling_ns() || missing.empty()) continue;
    to.push_back({name, now_ns - s.since_ns, missing.mapped(world_.world_ranks), world_.size});
  }
}

bool Leader::warn_of_stalls(std::int64_t now_ns) {
  std::string warning;
  int names = 0;
  for (auto& [name, s] : stalls_) {
    const std::int64_t waited = now_ns - s.since_ns;
    const negotiate::RankSet missing = s.here.complement(world_.size);
    if (stall_limits_.shutdown_ns > 0 && waited >= stall_limits_.shutdown_ns) {
      coordinator_->gone(missing.empty() ? 0 : missing.first(), HVD_TIMEOUT,
                         "'" + name + "' has waited " + std::to_string(waited / 1000000000) + " s for " +
                             missing.mapped(world_.world_ranks).text(16) + " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
      stalls_.clear();
      return true;
    }
    if (waited < stall_limits_.warn_ns || (s.told_ns && now_ns - s.told_ns < stall_limits_.warn_ns)) continue;
    s.told_ns = now_ns;
    if (++names <= 8)
      warning += "\n  '" + name + "' for " + std::to_string(waited / 1000000000) + " s, not submitted by " +
                 missing.mapped(world_.world_ranks).text(16);
  }
  if (names > 8) warning += "\n  and " + std::to_string(names - 8) + " more";
  if (!warning.empty()) log_warning("some ranks wait for others that have not submitted the same operation:" + warning);
  return !stalls_.empty();
}

/// All that waits for long by now, every second, and once that nothing does any more.  What does not get through is
/// told the next time.
void Engine::tell_hvdrun(std::int64_t now_ns) {
  std::vector<StallReport> waits;
  for (auto& s : mine_)
    if (s->leader()) s->leader()->long_waits(now_ns, waits);
  if (waits.empty() ? waits_told_ns_ == 0 : now_ns - waits_told_ns_ < tell_after_ns) return;
  const bool none = waits.empty();
  const std::string body = wire::to_json(merge_stalls(std::move(waits)));
  if (wire::link::send(link_, wire::Type::stall, body.data(), body.size(), false) == 0)
    waits_told_ns_ = none ? 0 : now_ns;
}

/// The page that the guard reads: since when nothing of what this rank has submitted moves.  Under drive_.
void Engine::tell_guard(std::int64_t now_ns) {
  std::uint64_t progress = 0;
  for (auto& s : mine_) progress += s->progress();
  if (progress != std::exchange(progress_, progress) || waits_since_ns_ == 0) {
    waits_since_ns_ = now_ns;
    return shared_.status.goes_on();
  }
  if (now_ns - waits_since_ns_ < tell_after_ns || now_ns - waits_noted_ns_ < tell_after_ns) return;
  waits_noted_ns_ = now_ns;
  std::string first;
  for (auto& s : mine_)
    if (const std::string name = s->first_name_under_way(); !name.empty() && (first.empty() || name < first))
      first = name;
  if (!first.empty()) shared_.status.waits(first, waits_since_ns_);
}

}  // namespace hvd::core
