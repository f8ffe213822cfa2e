#include "launcher/hang/hang_watch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hvd::launcher {

namespace {

constexpr double look_every = 0.5;
constexpr double longest_between_looks = 5;  // after a longer pause, hvdrun was stopped, and perhaps the ranks too
constexpr double word_lasts = 5;             // validity of a coordinator's report, which comes every second
constexpr std::size_t most_asked = 64;
constexpr double told_together = 2;
constexpr std::size_t most_kept_lines = 8;
constexpr double longest_put_off = 600;                         // of the user's limit, for work that ends by itself
constexpr double frozen_look_after = 1, frozen_look_every = 4;  // the coordinator reports before
constexpr double put_off_step = 5, goes_on_within = 4;
constexpr std::uint32_t runtime_pause = 14;  // two questions, and late answers on a loaded machine

LifeStage where_of(wire::RankPhase place) {
  switch (place) {
    case wire::RankPhase::script:
      return LifeStage::script;
    case wire::RankPhase::init:
      return LifeStage::init;
    case wire::RankPhase::working:
      return LifeStage::working;
    case wire::RankPhase::leaving:
      break;
  }
  return LifeStage::leaving;
}

}  // namespace

HangWatch::HangWatch(const Session& session, const JobMap& map, std::optional<HangLimits> patience, bool elastic,
                     EventSink events)
    : session_(session),
      map_(map),
      patience_(patience),
      events_(std::move(events)),
      incidents_(patience.value_or(HangLimits{})),
      collectives_(patience.value_or(HangLimits{}).hang, elastic),
      ranks_(map.ranks.size()) {
  if (!elastic) return;
  world_.emplace(map.ranks.size());
  std::iota(world_->begin(), world_->end(), 0);
}

RankActivity& HangWatch::activity(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  if (at >= ranks_.size()) ranks_.resize(at + 1);
  return ranks_[at];
}

void HangWatch::standing(int rank, const wire::StatusReport& s) {
  const double now = monotonic_seconds();
  look_again();
  RankActivity& r = activity(rank);
  r.where = where_of(s.place);
  r.since = now - s.place_seconds;
  r.waits_for = s.waits_for;
  r.gpu = s.gpu;
  r.gpu_late = s.gpu_late;
  r.waits_what = s.waits_what;
  for (std::string* name : {&r.waits_for, &r.gpu_late, &r.waits_what})
    for (char& c : *name)
      if (static_cast<unsigned char>(c) < 32) c = '?';  // the name is printed on a terminal
  r.waits_since = now - s.waited_seconds;
  r.idle_since.reset();
  if (s.idle_seconds > 0) r.idle_since = now - s.idle_seconds;
}

void HangWatch::stall(int rank, std::vector<wire::Stall> stalls) {
  look_again();
  CoordinatorReport& report = said_[rank];
  report = {monotonic_seconds(), {}};
  for (wire::Stall& s : stalls) {
    const double since = report.at - s.waited_seconds;
    report.waits.push_back({std::move(s), since});
  }
}

void HangWatch::paused(int rank, bool paused) {
  look_again();
  RankActivity& r = activity(rank);
  r.stopped_since.reset();
  if (paused) r.stopped_since = monotonic_seconds();
}

void HangWatch::collective_wait(int rank, const wire::CollectiveWait& wait) {
  look_again();
  collectives_.take(rank, wait, monotonic_seconds());
}

void HangWatch::rank_ended(int rank) {
  look_again();
  collectives_.rank_ended(rank);
}

void HangWatch::all_paused(bool paused) {
  look_again();
  all_paused_ = paused;
  resumed_ = monotonic_seconds();
  for (RankActivity& r : ranks_) r.stopped_since.reset();
}

void HangWatch::world_is(const std::vector<std::int32_t>& workers) {
  look_again();
  world_ = workers;
  met_ = monotonic_seconds();
  said_.clear();  // these reports use the ranks of another world
  for (const std::int32_t w : workers) activity(w).waits_for.clear(), activity(w).gpu = wire::GpuProgress::none;
}

void HangWatch::leave_out_others(JobFacts* f) const {
  const auto lost = [&](std::int32_t w) {
    const RankState& state = session_.ranks()[static_cast<std::size_t>(w)];
    return state.stage >= RankStage::ended && (!state.death || state.death->cause != wire::Cause::finished);
  };
  std::vector<std::int32_t> living;
  for (const std::int32_t w : *world_)
    if (!lost(w)) living.push_back(w);
  const bool whole = living.size() == world_->size();
  // A world that has lost a rank is over, and the other ranks meet in init().  When all of them wait there, only the
  // elastic job's own limits apply.
  const auto comes = [&](std::int32_t w) { return f->ranks[static_cast<std::size_t>(w)].where == LifeStage::init; };
  if (!whole && std::all_of(living.begin(), living.end(), comes)) living.clear();
  for (std::size_t r = 0; r < f->ranks.size(); ++r)
    if (std::find(living.begin(), living.end(), static_cast<std::int32_t>(r)) == living.end())
      f->ranks[r].where = LifeStage::outside;
  if (!whole) return f->waits.clear();
  for (StalledOperation& w : f->waits) {
    std::erase_if(w.stall.missing, [&](int r) { return r >= static_cast<int>(world_->size()); });
    for (int& r : w.stall.missing) r = (*world_)[static_cast<std::size_t>(r)];
    std::sort(w.stall.missing.begin(), w.stall.missing.end());
  }
}

/// The facts at the time @p now.  The session, not the guards' reports, decides which ranks are absent or have ended.
JobFacts HangWatch::facts(double now) const {
  JobFacts f{now, ranks_, {}};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    RankActivity& r = f.ranks[i];
    const RankState& state = session_.ranks()[i];
    if (state.stage == RankStage::absent) r.where = LifeStage::absent;
    if (state.stage == RankStage::running && r.where == LifeStage::absent) r.where = LifeStage::script;
    if (const auto frozen = frozen_.find(static_cast<int>(i)); frozen != frozen_.end() && !r.stopped_since)
      r.stopped_since = frozen->second;
    if (state.stage < RankStage::ended) continue;
    r.where = LifeStage::ended;
    if (state.death) r.since = static_cast<double>(state.death->time_ns) / 1e9;
  }
  for (const auto& [rank, said] : said_)
    if (now - said.at < word_lasts) f.waits.insert(f.waits.end(), said.waits.begin(), said.waits.end());
  for (RankActivity& r : f.ranks) {
    r.since = std::max(r.since, r.where == LifeStage::init ? std::max(resumed_, met_) : resumed_);
    r.waits_since = std::max(r.waits_since, resumed_);
    if (r.idle_since) r.idle_since = std::max(*r.idle_since, resumed_);
  }
  f.others = collectives_.incidents(now, static_cast<int>(f.ranks.size()));
  const auto count_from_resumed = [&](auto& waits) {
    for (auto& wait : waits) wait.since = std::max(wait.since, resumed_);
    std::erase_if(waits,
                  [&](const auto& wait) { return now - wait.since < patience_->hang && wait.since == resumed_; });
  };
  count_from_resumed(f.waits);
  count_from_resumed(f.others);
  if (world_) leave_out_others(&f);
  return f;
}

void HangWatch::turn() {
  const double now = monotonic_seconds();
  if (!patience_ || all_paused_ || now < next_look_) return;
  if (looked_ && now - *looked_ > longest_between_looks) resumed_ = now;
  next_look_ = now + look_every;
  if (collectives_.must_ask(now))
    events_(OperationsAsked{[this](const wire::JobOperations& operations) {
      collectives_.answered(collectives_of(operations), monotonic_seconds());
      look_again();
    }});
  const JobFacts known = facts(now);
  look_for_frozen(known);
  is_quiet_ = !may_become_hang(known) && incidents_.none_open() && collectives_.is_quiet();
  for (const IncidentNotice& event : incidents_.look(known)) tell(event);
  looked_ = is_quiet_ ? std::nullopt : std::optional(now);
  if (!incidents_.none_open()) return;
  open_lines_.clear();
  open_hang_.reset();
}

void HangWatch::look_for_frozen(const JobFacts& known) {
  std::vector<int> others;
  double since = known.now;
  for (std::size_t r = 0; r < known.ranks.size(); ++r) {
    const RankActivity& rank = known.ranks[r];
    if (rank.where != LifeStage::working) continue;
    if (rank.waits_for.empty())
      others.push_back(static_cast<int>(r));
    else
      since = std::min(since, rank.waits_since);
  }
  const bool is_told = !known.waits.empty() || !known.others.empty();
  if (is_told || others.size() > most_asked || known.now - since < patience_->hang + frozen_look_after)
    return frozen_.clear();
  if (others.empty() || known.now < next_frozen_look_) return;
  next_frozen_look_ = known.now + frozen_look_every;
  events_(StacksWanted{others, [this, since](const Pictures& pictures) {
                         for (const auto& [rank, picture] : pictures)
                           if (picture.state == "F" || (picture.state == "D" && picture.python.empty()))
                             frozen_.emplace(rank, since);
                           else
                             frozen_.erase(rank);
                         look_again();
                       }});
}

/// Returns the ranks whose stacks are requested: the missing ranks and Incident::waiter.  With several hosts, also one
/// rank of each host, so a missing answer shows an unreachable host.
std::vector<int> HangWatch::whom_to_ask(const Incident& incident) const {
  std::vector<int> ranks(
      incident.missing.begin(),
      incident.missing.begin() + static_cast<std::ptrdiff_t>(std::min(incident.missing.size(), most_asked)));
  if (incident.waiter >= 0) ranks.push_back(incident.waiter);
  if (map_.hosts.size() < 2) return ranks;
  std::size_t hosts = 0;
  for (const MappedRank& p : map_.ranks)
    if (p.local_rank == 0 && hosts++ < most_asked && std::find(ranks.begin(), ranks.end(), p.rank) == ranks.end())
      ranks.push_back(p.rank);
  return ranks;
}

/// Keeps lines for open_lines().  Drops lines that were printed more than two seconds earlier.
void HangWatch::keep_lines(const std::vector<std::string>& lines) {
  const double now = monotonic_seconds();
  if (now - kept_at_ > told_together) open_lines_.clear();
  kept_at_ = now;
  for (const std::string& line : lines)
    if (open_lines_.size() < most_kept_lines)
      open_lines_.push_back(line.starts_with("hvdrun: ") ? line.substr(8) : line.substr(6));
}

void HangWatch::pause_limit(const IncidentNotice& event) {
  if (event.seconds - patience_->shutdown >= longest_put_off || event.incident.missing.size() > most_asked) return;
  events_(StacksWanted{event.incident.missing, [this, event](const Pictures& pictures) {
                         if (all_at_work(event.incident, pictures)) events_(LimitPaused{runtime_pause});
                       }});
}

void HangWatch::give_up(const IncidentNotice& event) {
  const double over = event.seconds - patience_->shutdown;
  const auto end_job = [this, event] {
    if (!open_hang_) open_hang_ = hang_data(event.incident, map_, {});
    events_(HangTooLong{given_up(event.incident, event.seconds, map_)});
  };
  if (over >= longest_put_off || event.incident.missing.empty() || event.incident.missing.size() > most_asked)
    return end_job();
  events_(StacksWanted{event.incident.missing, [this, event, over, end_job](const Pictures& pictures) {
                         const double now = monotonic_seconds();  // a loaded machine may answer late
                         const bool at_work = all_at_work(event.incident, pictures);
                         const double until = now + (at_work ? put_off_step : goes_on_within);
                         if (!incidents_.put_off(event.incident, until)) return;  // the incident is over
                         // A rank that has just ended its work gets time to go on.
                         if (!at_work && now - at_work_ > put_off_step + 2 * goes_on_within) return end_job();
                         if (at_work && now - std::exchange(at_work_, now) > 2 * put_off_step + goes_on_within)
                           events_(HangTold{put_off_line(event.incident, longest_put_off - over, map_)});
                       }});
}

std::optional<OpenHang> HangWatch::open_hang() const {
  std::optional<OpenHang> hang = open_hang_;
  // On a loaded machine, the guard may report the stop only after the user has seen the lines.
  const auto rank = static_cast<std::size_t>(hang ? hang->rank : -1);
  if (rank < ranks_.size() && ranks_[rank].stopped_since) hang->is_stopped = true;
  return hang;
}

void HangWatch::tell(const IncidentNotice& event) {
  const bool is_idle = event.incident.kind == IncidentKind::idle;
  if (event.kind == NoticeKind::closed && is_idle) return;  // the job's output shows that it goes on
  if (event.kind != NoticeKind::closed && !is_idle && !open_hang_) open_hang_ = hang_data(event.incident, map_, {});
  if (event.kind == NoticeKind::closed) return events_(HangTold{closed_line(event.incident, event.seconds, map_)});
  if (event.kind == NoticeKind::near_limit) return pause_limit(event);
  if (event.kind == NoticeKind::give_up) return give_up(event);
  const auto tell_lines = [this, event](const Pictures& pictures) {
    if (!is_worth_telling(event.incident, pictures)) return;
    std::vector<int> ended;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (session_.ranks()[r].stage >= RankStage::ended) ended.push_back(static_cast<int>(r));
    const std::vector<std::string> lines = hang_lines(event.incident, event.seconds, map_, pictures, ended);
    for (const std::string& line : lines) events_(HangTold{line});
    keep_lines(lines);
    open_hang_ = hang_data(event.incident, map_, pictures);
    const bool of_operations =
        event.incident.kind == IncidentKind::operation || event.incident.kind == IncidentKind::stuck;
    if (event.kind == NoticeKind::opened && of_operations) events_(DifferenceWanted{});
  };
  events_(StacksWanted{whom_to_ask(event.incident), tell_lines});
}

}  // namespace hvd::launcher
