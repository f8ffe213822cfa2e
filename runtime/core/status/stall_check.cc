#include "core/status/stall_check.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "common/log.h"
#include "memory/futex.h"
#include "negotiate/command.h"
#include "negotiate/idset.h"

namespace hvd::core {

using negotiate::Command;

namespace {

/// Nanoseconds between two reports of a leader to its parent: a quarter of @p warn_ns, but 50 ms to 1 s.
std::int64_t report_every(std::int64_t warn_ns) {
  return std::clamp<std::int64_t>(warn_ns / 4, 50'000'000, 1'000'000'000);
}

/// A report from another leader is valid for this many times report_every().  Leaders repeat their reports while the
/// wait lasts.  The command that ends the wait removes the report at once.
constexpr int report_lasts = 20;

/// The caller checks ten times a second while an operation waits.  After a longer pause, this process was stopped.
constexpr std::int64_t longest_between_checks_ns = 2'000'000'000;

}  // namespace

std::vector<wire::Stall> merge_stalls(std::vector<StallReport> reports) {
  std::map<std::string, std::vector<const StallReport*>> groups;  // by missing ranks
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

StallCheck::StallCheck(Sources sources, const Config& config) : sources_(sources), limits_(StallLimits::of(config)) {}

void StallCheck::published(Command type, std::string_view body) {
  if (!stalls_.empty()) settle(type, body);
}

/// Updates stalls_ with the incomplete operations that this leader knows.  The coordinator also uses the reports of
/// other leaders.
void StallCheck::collect(std::int64_t now_ns) {
  for (auto& [name, stall] : stalls_) stall.seen = false;
  auto note = [&](std::uint32_t id, const std::string& name, const negotiate::RankSet& here) {
    if (negotiate::is_message_name(name)) return;
    Stall& s = stalls_[name];
    if (s.since_ns == 0) s.since_ns = now_ns;
    if (!s.seen) s.here = {};
    s.seen = true;
    s.id = id;
    s.here.merge(here);
  };
  if (sources_.tree) sources_.tree->held(note);
  if (sources_.coordinator)
    sources_.coordinator->incomplete(
        [&](const std::string& name, const negotiate::RankSet& here) { note(negotiate::no_slot, name, here); });
  sources_.gather.partial([&](std::uint32_t id, const std::vector<bool>& bits) {
    std::vector<int> here;
    for (std::size_t l = 0; l < bits.size(); ++l)
      if (bits[l]) here.push_back(sources_.world.locals()[l]);
    const std::string* name = this->name(id);
    if (name && here.size() < bits.size()) note(id, *name, negotiate::RankSet::of(std::move(here)));
  });
  if (sources_.tree && sources_.coordinator) {
    for (auto& [name, here] : sources_.tree->take_waits()) notices_[name].push_back({now_ns, std::move(here)});
    const std::int64_t since = now_ns - report_lasts * report_every(limits_.warn_ns);
    for (auto it = notices_.begin(); it != notices_.end();) {
      std::erase_if(it->second, [since](const StallNotice& t) { return t.at_ns < since; });
      for (const StallNotice& t : it->second) note(negotiate::no_slot, it->first, t.here);
      it = it->second.empty() ? notices_.erase(it) : std::next(it);
    }
  }
  std::erase_if(stalls_, [](const auto& s) { return !s.second.seen; });
}

const std::string* StallCheck::name(std::uint32_t id) const {
  if (sources_.tree) return sources_.tree->name(id);
  return sources_.coordinator->live(id) ? &sources_.coordinator->name(id) : nullptr;
}

/// Forgets the waits for the names in this command.  A later wait for one of the names counts from zero.
void StallCheck::settle(Command type, std::string_view body) {
  auto forget = [this](const std::string& name) {
    stalls_.erase(name);
    notices_.erase(name);
  };
  if (type != Command::batch && type != Command::fail && type != Command::assign) return;
  negotiate::ByteReader r(body);  // the bodies of these three commands begin with two u32
  r.get<std::uint32_t>();
  r.get<std::uint32_t>();
  if (type == Command::batch) forget(negotiate::join_text);  // ranks that have not joined still work
  if (type == Command::batch)
    negotiate::get_ids(r, sources_.ids, [&](std::uint32_t id) {
      if (const std::string* n = name(id)) forget(*n);
    });
  else if (type == Command::fail)
    forget(std::string(r.text()));
  else if (type == Command::assign)
    forget(std::string(r.rest()));
}

/// Refuses operations of different kinds with the same name if each rank waits in one of them.  An example is
/// hvd.allreduce(x, "a") and hvd.broadcast(x, "a").  Perhaps the ranks only run the two operations in different order.
/// So both are refused only after worth_telling_ns().
/// A known gap: with several nodes, a record waits in the tree until all ranks below have sent it.  The coordinator
/// then does not know all ranks, and such operations wait on.
void StallCheck::refuse_crossed(std::int64_t now_ns) {
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
    if (crossed.size() > 1 && ranks == sources_.world.size && all.count() == sources_.world.size)
      return sources_.coordinator->refuse_crossed(crossed);
  }
}

/// Waits do not grow while this process is stopped, for example by Ctrl-Z: the other ranks may be stopped too.
void StallCheck::leave_out_pause(std::int64_t now_ns) {
  const std::int64_t pause = now_ns - std::exchange(checked_ns_, now_ns);
  if (pause <= longest_between_checks_ns) return;
  for (auto& [name, stall] : stalls_) {
    stall.since_ns += pause;
    if (stall.told_ns) stall.told_ns += pause;
  }
}

bool StallCheck::check(std::int64_t now_ns) {
  if (limits_.warn_ns <= 0) return false;
  leave_out_pause(now_ns);
  collect(now_ns);
  if (sources_.coordinator) {
    refuse_crossed(now_ns);
    return warn(now_ns);
  }
  tell_parent(now_ns);
  return !stalls_.empty();
}

/// Reports long waits to the parent, up to 64 in each call.
void StallCheck::tell_parent(std::int64_t now_ns) {
  constexpr int most = 64;
  const std::int64_t every = report_every(limits_.warn_ns);
  int told = 0;
  for (auto& [name, s] : stalls_) {
    if (now_ns - s.since_ns < every || (s.told_ns && now_ns - s.told_ns < every)) continue;
    if (++told > most) break;
    s.told_ns = now_ns;
    sources_.tree->waits(s.id, name, s.here);
  }
}

void StallCheck::long_waits(std::int64_t now_ns, std::vector<StallReport>& to) const {
  if (!sources_.coordinator) return;
  for (const auto& [name, s] : stalls_) {
    const negotiate::RankSet missing = s.here.complement(sources_.world.size);
    if (now_ns - s.since_ns < worth_telling_ns() || missing.empty()) continue;
    to.push_back({name, now_ns - s.since_ns, missing.mapped(sources_.world.world_ranks), sources_.world.size});
  }
}

bool StallCheck::warn(std::int64_t now_ns) {
  std::string warning;
  int names = 0;
  for (auto& [name, s] : stalls_) {
    const std::int64_t waited = now_ns - s.since_ns;
    const negotiate::RankSet missing = s.here.complement(sources_.world.size);
    if (limits_.is_over(waited, sources_.status.limit_is_paused(now_ns))) {
      sources_.coordinator->gone(missing.empty() ? 0 : missing.first(), HVD_TIMEOUT,
                                 "'" + name + "' has waited " + std::to_string(waited / 1000000000) + " s for " +
                                     missing.mapped(sources_.world.world_ranks).text(16) +
                                     " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
      stalls_.clear();
      return true;
    }
    if (waited < limits_.warn_ns || (s.told_ns && now_ns - s.told_ns < limits_.warn_ns)) continue;
    s.told_ns = now_ns;
    if (++names <= 8)
      warning += "\n  '" + name + "' for " + std::to_string(waited / 1000000000) + " s, not submitted by " +
                 missing.mapped(sources_.world.world_ranks).text(16);
  }
  if (names > 8) warning += "\n  and " + std::to_string(names - 8) + " more";
  if (!warning.empty()) log_warning("some ranks wait for others that have not submitted the same operation:" + warning);
  return !stalls_.empty();
}

}  // namespace hvd::core
