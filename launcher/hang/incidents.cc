#include "launcher/hang/incidents.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace hvd::launcher {

namespace {

constexpr double time_for_the_coordinator = 2;  // for its report, which names the ranks that wait for a stopped rank
constexpr double patience_with_survivors = 30;
constexpr double least_for_end = 10;
constexpr double least_for_idle = 60;
constexpr double stuck_after = 20;
constexpr double closed_after = 2;   // an operation that ends by a failure must not be reported as going on
constexpr double settled_after = 2;  // ranks that go on together are reported at different times
constexpr double first_pause = 60, longest_pause = 1800;
constexpr int most_closings = 6;  // after each closing the patience doubles, up to 64 times: the ranks are slow
constexpr std::size_t most_open = 10;
constexpr double time_for_the_runtime = 3;  // the runtime gives up by itself earlier
constexpr double near_limit = 5, near_again = 5;

/// Questions about the facts.
struct FactsView {
  const JobFacts& facts;
  const HangLimits& patience;

  const RankActivity& rank(int r) const { return facts.ranks[static_cast<std::size_t>(r)]; }
  double age(double since) const { return facts.now - since; }
  bool stopped(int r, double more = time_for_the_coordinator) const {
    const auto& since = rank(r).stopped_since;
    return since && rank(r).where != LifeStage::ended && age(*since) >= patience.hang + more;
  }
  bool waits(int r) const {
    return rank(r).where == LifeStage::working && !rank(r).waits_for.empty() &&
           age(rank(r).waits_since) >= patience.hang;
  }
  template <class F>
  std::vector<int> those(F&& f) const {
    std::vector<int> found;
    for (int r = 0; r < static_cast<int>(facts.ranks.size()); ++r)
      if (rank(r).where != LifeStage::outside && f(r)) found.push_back(r);
    return found;
  }
  std::vector<int> at(LifeStage where) const {
    return those([&](int r) { return rank(r).where == where; });
  }
  /// When the last of @p ranks came to its stage.
  double last_came(const std::vector<int>& ranks) const {
    double last = 0;
    for (const int r : ranks) last = std::max(last, rank(r).since);
    return last;
  }
};

int count(const std::vector<int>& ranks) { return static_cast<int>(ranks.size()); }

/// Finds incidents that the coordinator reports.  A rank may have submitted the operation although its announcement has
/// not arrived.  The rank's own status then shows this, and the incident does not name the rank.
void told_by_the_coordinator(const FactsView& v, std::vector<Incident>& found) {
  for (const auto& [w, since] : v.facts.waits) {
    Incident i{IncidentKind::operation, {}, w.more, w.size - count(w.missing) - w.more, since, w.tensor, w.tensors};
    for (const int r : w.missing)
      if (!v.waits(r) || v.rank(r).waits_for != w.tensor) i.missing.push_back(r);
    if (i.missing.empty() && w.more == 0) i.kind = IncidentKind::stuck, i.waiting = w.size;
    // Most ranks are missing.  Perhaps they wait in another operation, for a few ranks that took another branch.  The
    // incident must then name the few ranks.
    if (count(i.missing) + i.more > i.waiting &&
        (v.age(i.since) < v.patience.hang + time_for_the_coordinator ||
         std::none_of(i.missing.begin(), i.missing.end(), [&](int r) { return v.rank(r).waits_for.empty(); })))
      continue;
    found.push_back(std::move(i));
  }
}

/// Finds ranks whose GPU computes while the other ranks' GPUs wait.  If all GPUs compute, no rank waits for another, so
/// the patience is longer.  If all have begun the exchange and it does not end, no rank is missing.
std::optional<Incident> seen_by_the_gpus(const FactsView& v, const std::vector<int>& waiting, double since) {
  using wire::GpuProgress;
  const auto those = [&](GpuProgress gpu) {
    std::vector<int> found;
    std::copy_if(waiting.begin(), waiting.end(), std::back_inserter(found),
                 [&](int r) { return v.rank(r).gpu == gpu; });
    return found;
  };
  const std::vector<int> late = those(GpuProgress::computing), exchanging = those(GpuProgress::exchanging);
  Incident i{IncidentKind::late_gpu, late, 0, count(exchanging), since, v.rank(waiting[0]).waits_for, 1};
  if (!late.empty() && !exchanging.empty()) {
    i.tensor = v.rank(exchanging[0]).waits_for;
    return i;
  }
  if (!late.empty()) {
    i.waiting = count(waiting);
    return v.age(since) < stuck_after ? std::nullopt : std::optional(i);
  }
  const std::vector<int> ranks = v.those([&](int r) { return v.rank(r).where != LifeStage::ended; });
  if (exchanging != ranks || v.age(since) < v.patience.hang + time_for_the_coordinator) return {};
  i.kind = IncidentKind::stuck;
  i.details = {
      "their GPUs have computed all tensors, and NCCL has begun the exchange but does not end it",
      "NCCL_DEBUG=INFO tells its way between the GPUs; a kernel that fills a GPU also keeps NCCL from running"};
  return i;
}

/// Finds incidents by the ranks' own status, when the coordinator reports none: it cannot, or no rank is missing.
void seen_by_the_guards(const FactsView& v, std::vector<Incident>& found) {
  const std::vector<int> waiting = v.those([&](int r) { return v.waits(r); });
  if (waiting.empty()) return;
  double since = 0;
  bool alike = true;
  const RankActivity& first = v.rank(waiting[0]);
  for (const int r : waiting) {
    since = std::max(since, v.rank(r).waits_since);
    alike = alike && v.rank(r).waits_for == first.waits_for;
  }
  const std::vector<int> idle = v.those([&](int r) { return v.rank(r).where == LifeStage::working && !v.waits(r); });
  const std::vector<int> stopped = v.those([&](int r) { return v.rank(r).where != LifeStage::ended && v.stopped(r); });
  const bool all = count(waiting) + count(v.at(LifeStage::ended)) == count(v.those([](int) { return true; }));
  Incident i{IncidentKind::operation, {}, 0, count(waiting), since, first.waits_for, 1};
  if (stopped.empty())
    if (auto gpus = seen_by_the_gpus(v, waiting, since)) return found.push_back(std::move(*gpus));
  if (!stopped.empty()) {
    for (const int r : stopped) i.waiting -= v.waits(r);
    i.missing = stopped;
  } else if (!idle.empty() && v.age(since) >= v.patience.warn + time_for_the_runtime) {
    i.missing = idle;
  } else if (all && alike && v.age(since) >= stuck_after) {
    i.kind = IncidentKind::stuck;
  } else {
    return;
  }
  if (i.waiting > 0) found.push_back(std::move(i));
}

void at_the_beginning(const FactsView& v, std::vector<Incident>& found) {
  const std::vector<int> waiting = v.at(LifeStage::init);
  if (waiting.empty() || !v.at(LifeStage::absent).empty()) return;
  const double since = v.last_came(waiting);
  std::vector<int> missing = v.those([&](int r) { return v.rank(r).where != LifeStage::init; });
  // Survivors of an elastic job's world meet again.  A rank at work learns of it at its next operation.
  const bool works =
      std::any_of(missing.begin(), missing.end(), [&](int r) { return v.rank(r).where == LifeStage::working; });
  if (v.age(since) < (works             ? patience_with_survivors
                      : missing.empty() ? patience_with_all_at_init
                                        : patience_with_late_at_init))
    return;
  found.push_back({IncidentKind::init, std::move(missing), 0, count(waiting), since, "", 0});
}

/// Finds ranks that still work when the other ranks have finished, and processes that do not end after their script.
void at_the_end(const FactsView& v, std::vector<Incident>& found) {
  const std::vector<int> working = v.at(LifeStage::working), leaving = v.at(LifeStage::leaving),
                         ended = v.at(LifeStage::ended);
  if (leaving.empty() && ended.empty()) return;
  for (const LifeStage where : {LifeStage::absent, LifeStage::init})
    if (!v.at(where).empty()) return;
  const std::vector<int>& missing = working.empty() ? leaving : working;
  if (missing.empty()) return;
  std::vector<int> through = ended;
  through.insert(through.end(), leaving.begin(), leaving.end());
  const double since = v.last_came(through);
  if (v.age(since) < std::max(v.patience.warn, least_for_end)) return;
  if (working.empty())
    found.push_back({IncidentKind::leaving, missing, 0, 0, since, "", 0});
  else
    found.push_back({IncidentKind::end, missing, 0, count(leaving), since, "", 0});
}

/// Finds an idle job: it has two ranks or more, and no rank computes or prints.  The ranks may poll a store, or wait
/// for a file.
void all_idle(const FactsView& v, std::vector<Incident>& found) {
  std::vector<int> ranks = v.those([&](int r) { return v.rank(r).where != LifeStage::ended; });
  double since = 0;
  for (const int r : ranks) {
    const RankActivity& rank = v.rank(r);
    if (!rank.idle_since || rank.stopped_since || (rank.where != LifeStage::script && rank.where != LifeStage::working))
      return;
    since = std::max(since, *rank.idle_since);
  }
  if (ranks.size() < 2 || v.age(since) < std::max(v.patience.warn, least_for_idle)) return;
  found.push_back({IncidentKind::idle, std::move(ranks), 0, 0, since, "", 0});
}

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int r) { return std::binary_search(b.begin(), b.end(), r); });
}

}  // namespace

std::vector<Incident> incidents_now(const JobFacts& facts, const HangLimits& patience) {
  const FactsView v{facts, patience};
  std::vector<Incident> found = facts.others;
  if (facts.waits.empty())
    seen_by_the_guards(v, found);
  else
    told_by_the_coordinator(v, found);
  if (found.empty()) at_the_beginning(v, found);
  if (found.empty()) at_the_end(v, found);
  if (found.empty()) all_idle(v, found);
  for (Incident& i : found)
    for (const int r : i.missing)
      if (v.rank(r).gpu == wire::GpuProgress::computing && !v.rank(r).waits_for.empty())
        i.gpu_late[r] = v.rank(r).gpu_late;
  for (Incident& i : found)
    for (const int r : v.at(LifeStage::working))
      if (!i.tensor.empty() && v.rank(r).waits_for == i.tensor) {
        i.what = v.rank(r).waits_what;
        if (i.tensor.starts_with("c10d") && i.waiter < 0) i.waiter = r;
      }
  // Stopped ranks that no incident names yet.
  const std::vector<int> alone = v.those([&](int r) {
    return v.stopped(r, 2 * time_for_the_coordinator) &&
           std::none_of(found.begin(), found.end(),
                        [r](const Incident& i) { return std::binary_search(i.missing.begin(), i.missing.end(), r); });
  });
  if (!alone.empty()) {
    double since = facts.now;
    for (const int r : alone) since = std::min(since, *v.rank(r).stopped_since);
    found.push_back({IncidentKind::stopped, alone, 0, 0, since, "", 0});
  }
  std::stable_sort(found.begin(), found.end(), [](const Incident& a, const Incident& b) {
    return a.missing.size() + static_cast<std::size_t>(a.more) < b.missing.size() + static_cast<std::size_t>(b.more);
  });
  return found;
}

bool may_become_hang(const JobFacts& facts) {
  return !facts.waits.empty() || !facts.others.empty() ||
         std::any_of(facts.ranks.begin(), facts.ranks.end(), [](const RankActivity& r) {
           if (r.where == LifeStage::outside) return false;
           const bool at_work = r.where == LifeStage::script || r.where == LifeStage::working;
           return !at_work || r.stopped_since || r.idle_since || !r.waits_for.empty();
         });
}

/// The open incident that @p incident continues.  The two incidents have the same kind, and the same missing ranks or
/// one in common. An incident that was continued at @p now already is returned only for the same ranks.  nullptr: @p
/// incident is new.
Incidents::OpenIncident* Incidents::same(const Incident& incident, double now) {
  for (OpenIncident& o : open_)
    if (o.incident.kind == incident.kind && o.incident.missing == incident.missing) return &o;
  for (OpenIncident& o : open_)
    if (o.seen < now && o.incident.kind == incident.kind && meet(o.incident.missing, incident.missing)) return &o;
  return nullptr;
}

void Incidents::take(const Incident& incident, double now, std::vector<IncidentNotice>& events) {
  OpenIncident* o = same(incident, now);
  if (!o && open_.size() >= most_open) return;
  if (!o) o = &open_.emplace_back();
  const bool has_more = o->told && !std::includes(o->told_missing.begin(), o->told_missing.end(),
                                                  incident.missing.begin(), incident.missing.end());
  if (!has_more)
    o->grew_at.reset();
  else if (!o->grew_at)
    o->grew_at = now;
  const bool grew = o->grew_at && now - *o->grew_at >= settled_after;
  o->incident = incident;
  o->seen = now;
  const double seconds = now - incident.since;
  const auto before = closings_.find(incident.missing);
  const int closings = before == closings_.end() ? 0 : before->second;
  if (!o->told && seconds < patience_.hang * (1 << std::min(closings, most_closings))) return;
  if (!o->told || grew || now >= o->next) {
    events.push_back({!o->told || grew ? NoticeKind::opened : NoticeKind::again, incident, seconds});
    o->pause = o->told && !grew ? std::min(2 * o->pause, longest_pause) : first_pause;
    o->told = now;
    o->told_missing = incident.missing;
    o->next = now + o->pause;
  }
  const bool may = incident.kind != IncidentKind::stopped && incident.kind != IncidentKind::idle &&
                   incident.kind != IncidentKind::end;  // these ranks may have work of their own
  if (incident.kind == IncidentKind::operation && patience_.shutdown > 0 &&
      seconds >= patience_.shutdown - near_limit && !o->given_up && now >= o->near_at) {
    o->near_at = now + near_again;
    events.push_back({NoticeKind::near_limit, incident, seconds});
  }
  if (!may || o->given_up || patience_.shutdown <= 0 || seconds < patience_.shutdown + time_for_the_runtime) return;
  if (now < o->give_up_at) return;
  o->given_up = true;
  events.push_back({NoticeKind::give_up, incident, seconds});
}

bool Incidents::put_off(const Incident& incident, double until) {
  for (OpenIncident& o : open_)
    if (o.incident.kind == incident.kind && meet(o.incident.missing, incident.missing)) {
      o.given_up = false;
      o.give_up_at = until;
      return true;
    }
  return false;
}

void Incidents::close(const JobFacts& facts, const std::vector<Incident>& current,
                      std::vector<IncidentNotice>& events) {
  for (auto it = open_.begin(); it != open_.end();) {
    if (facts.now - it->seen < closed_after) {
      ++it;
      continue;
    }
    OpenIncident was = *it;
    it = open_.erase(it);
    if (was.told) was.incident.missing = was.told_missing;  // the user has read of these ranks
    const bool elsewhere = std::any_of(current.begin(), current.end(), [&](const Incident& i) {
      return meet(i.missing, was.incident.missing) || i.missing.empty() || was.incident.missing.empty();
    });
    const bool gone = std::any_of(was.incident.missing.begin(), was.incident.missing.end(), [&](int r) {
      return facts.ranks[static_cast<std::size_t>(r)].where >= LifeStage::ended;
    });
    if (!was.told || elsewhere) continue;
    if (was.incident.kind == IncidentKind::operation) ++closings_[was.incident.missing];
    if (!gone) events.push_back({NoticeKind::closed, was.incident, was.seen - was.incident.since});
  }
}

std::vector<IncidentNotice> Incidents::look(const JobFacts& facts) {
  std::vector<IncidentNotice> events;
  std::vector<Incident> current = incidents_now(facts, patience_);
  // Unchanged incidents come first.  Otherwise same() could take one of them for another incident with a rank in
  // common.
  std::stable_partition(current.begin(), current.end(), [&](const Incident& i) {
    return std::any_of(open_.begin(), open_.end(), [&](const OpenIncident& o) {
      return o.incident.kind == i.kind && o.incident.missing == i.missing;
    });
  });
  for (const Incident& i : current) take(i, facts.now, events);
  close(facts, current, events);
  return events;
}

}  // namespace hvd::launcher
