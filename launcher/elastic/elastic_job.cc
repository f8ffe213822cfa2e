#include "launcher/elastic/elastic_job.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "launcher/verdict/exception_line.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {
namespace {

constexpr double gather_seconds = 30;  // a new worker waits this long for workers that were started with it
constexpr double leave_seconds = 10;   // a dismissed worker may take this long to leave before it is stopped
constexpr double late_seconds = 60;    // if a new worker prepares for longer, the user gets a message
constexpr int most_same_words = 3;     // the program has a bug if the same traceback comes this often in a row

/// The traceback with which a worker has ended.  Empty: the worker has ended for another reason.
std::string last_words(const wire::DeathRecord& d) {
  if (d.cause != wire::Cause::exited || d.traceback.empty()) return "";
  return d.traceback;
}

/// Returns true if the worker ended because its parameters differed again after a repair (--agreement repair).
bool diverged_again(const wire::DeathRecord& d) {
  return exception_line(last_words(d)).find("DivergedAgainError:") != std::string::npos;
}

/// "a spare on host2", "a new worker on host2": for messages about a worker that is not a member.
std::string called(const SlotPlace& place) {
  return (place.is_spare ? "a spare on " : "a new worker on ") + place.host;
}

}  // namespace

ElasticJob::ElasticJob(ElasticLimits limits, std::vector<ElasticWorker> workers, std::vector<ElasticHost> hosts,
                       SlotHistory history)
    : limits_(limits),
      hosts_(std::move(hosts)),
      history_(std::move(history)),
      next_number_(static_cast<int>(workers.size())) {
  for (ElasticWorker& w : workers) {
    invited_.push_back(w.number);
    workers_[w.number] = {std::move(w)};
  }
}

ElasticJob::WorkerRecord* ElasticJob::find(int number) {
  const auto found = workers_.find(number);
  return found == workers_.end() ? nullptr : &found->second;
}

bool ElasticJob::is_member(int number) const { return std::find(world_.begin(), world_.end(), number) != world_.end(); }

bool ElasticJob::is_excused(int worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && (found->second.excused || found->second.dismissed_at);
}

std::vector<std::int32_t> ElasticJob::expects(int worker, double now) {
  WorkerRecord* w = find(worker);
  if (!w) return {worker};
  if (!w->prepares_since && w->worker.stage == WorkerStage::starting) w->prepares_since = now;
  const std::vector<int> next = expected_world(worker, alive(), hosts_, limits_.world, history_.blocked(now));
  return {next.begin(), next.end()};
}

void ElasticJob::waits(int worker, double now) {
  WorkerRecord* w = find(worker);
  if (!w || w->gone) return;
  w->meets_again = w->worker.stage == WorkerStage::member;
  if (w->worker.stage != WorkerStage::starting) return;
  w->worker.stage = WorkerStage::waiting;
  if (!first_waits_at_ && !w->worker.place.is_spare) first_waits_at_ = now;
}

void ElasticJob::met(std::uint64_t epoch, const std::vector<std::int32_t>& members, double now) {
  const std::size_t before = world_.size();
  const bool first = epoch_ == 0;
  int joined = 0, spares = 0;
  // The members of an unbroken earlier world have met again at a commit.  The members of the first world begin with the
  // state.  After a broken world, nothing is proven.
  for (const std::int32_t m : first ? members : broken_ ? std::vector<std::int32_t>{} : world_)
    if (WorkerRecord* w = find(m)) w->is_proven = true;
  std::set<std::string> where;
  for (const std::int32_t m : members)
    if (WorkerRecord* w = find(m)) {
      if (!first && w->worker.stage != WorkerStage::member) {
        ++(w->was_spare ? spares : joined);
        if (!w->was_spare) where.insert(w->worker.place.host);
      }
      w->worker.stage = WorkerStage::member;
      w->meets_again = false;
    }
  world_ = members;
  epoch_ = epoch;
  first_waits_at_.reset();
  too_few_since_.reset();
  if (!first) {
    ++resets_;
    if (spares > 0) causes_.push_back(count_of(spares, "spare") + " took over");
    if (joined > 0)
      causes_.push_back(count_of(joined, "worker") + " joined on " + join({where.begin(), where.end()}, ", "));
    lines_.push_back(formatted("epoch {}: {} → {} ranks ({}){}{}{}", epoch, before, members.size(), sizes(),
                               broken_ ? formatted(", {:.2f} s after", now - broken_at_) : std::string(),
                               causes_.empty() ? "" : ": ", join(causes_, "; ")));
  }
  causes_.clear();
  broken_ = false;
  for (auto& [number, w] : workers_) {
    if (!w.gone) continue;
    if (std::find(members.begin(), members.end(), number) == members.end())
      w.excused = true;
    else
      broken_ = true;  // a member has died while the world formed
  }
}

void ElasticJob::withdraw(int worker) {
  if (WorkerRecord* w = find(worker)) w->gone = w->excused = true;
}

/// "alpha 2, beta 1".
std::string ElasticJob::sizes() const {
  std::vector<std::pair<std::string, int>> hosts;
  for (const std::int32_t m : world_) {
    const std::string& host = workers_.at(m).worker.place.host;
    if (hosts.empty() || hosts.back().first != host) hosts.emplace_back(host, 0);
    ++hosts.back().second;
  }
  std::vector<std::string> parts;
  for (const auto& [host, ranks] : hosts) parts.push_back(host + " " + std::to_string(ranks));
  return join(parts, ", ");
}

bool ElasticJob::survives(const wire::DeathRecord& death, double now, std::optional<double> since) {
  const bool lives = takes(death, now, since.value_or(now));
  is_over_ = is_over_ || (!lives && death.cause != wire::Cause::finished);
  return lives;
}

bool ElasticJob::takes(const wire::DeathRecord& death, double now, double since) {
  WorkerRecord* w = find(death.rank);
  if (!w || w->gone) return true;
  w->gone = true;
  const auto place = std::find(world_.begin(), world_.end(), death.rank);
  const bool was_member = is_member(death.rank);
  if (w->dismissed_at) {
    w->excused = true;
    broken_ = broken_ || (was_member && epoch_ > 0);
    return true;
  }
  if (death.cause == wire::Cause::finished) {
    if (was_member) {
      if (!finishing_) finished_ = death.rank;
      finishing_ = true;
      for (auto& [number, other] : workers_) other.excused = other.excused || (other.gone && number != death.rank);
    }
    if (!was_member && w->worker.stage != WorkerStage::member && epoch_ > 0 && !finishing_) {
      causes_.push_back(called(w->worker.place) + " ended before it was ready");
      blame(w->worker, "ended before it was ready", now);  // otherwise workers would be started in the slot for ever
    }
    return epoch_ > 0 || w->excused;
  }
  if (finishing_ || epoch_ == 0) return false;
  const std::string words = last_words(death);
  same_words_ = !words.empty() && words == last_words_ ? same_words_ + 1 : 1;
  last_words_ = words;
  if (!words.empty() && same_words_ >= most_same_words) {
    lines_.push_back(formatted("the same error has ended a worker {} times", same_words_));
    return false;
  }
  const std::string name =
      was_member ? formatted("rank {} on {}", place - world_.begin(), w->worker.place.host) : called(w->worker.place);
  const std::string fate = w->stopped ? "was not ready in time" : story(death);
  if (const std::string cause = name + " " + fate; std::find(causes_.begin(), causes_.end(), cause) == causes_.end())
    causes_.push_back(cause);
  if (diverged_again(death))
    leave(w->worker.place.host);
  else
    blame(w->worker, fate, now);
  if (!was_member) return true;
  if (!broken_) broken_at_ = since;
  broken_ = true;
  // A dismissed member does not count: its state is of an older world, and it is leaving.
  const bool somebody = std::any_of(workers_.begin(), workers_.end(), [](const auto& one) {
    return !one.second.gone && !one.second.dismissed_at && one.second.worker.stage == WorkerStage::member;
  });
  if (somebody || limits_.world.state_is_kept) return true;
  lines_.push_back("no rank with the training's state is left; --state-dir would keep a copy in a folder");
  return false;
}

void ElasticJob::hosts_are(std::vector<ElasticHost> hosts) {
  hosts_ = std::move(hosts);
  std::erase_if(hosts_, [this](const ElasticHost& h) { return left_hosts_.contains(h.name); });
}

/// Takes a host out of the job for ever.
void ElasticJob::leave(const std::string& host) {
  if (!left_hosts_.insert(host).second) return;
  hosts_are(std::move(hosts_));
  lines_.push_back("the job leaves " + host + ": a rank there has had other parameters than the others twice");
}

/// Records a failure of the worker's slot.  Tells the user if the slot gets no worker any more.  The slots of a host
/// mostly fail together, so only the first line has the reason.
void ElasticJob::blame(const ElasticWorker& worker, const std::string& story, double now) {
  constexpr double together_seconds = 5;
  const auto blocked = history_.failed(worker.place, now);
  if (blocked && *blocked == 0) return;
  const std::string reason = worker.place.host + " " + story;
  const bool is_told = blamed_ == reason && now - blamed_at_ < together_seconds;
  blamed_ = reason;
  blamed_at_ = now;
  lines_.push_back(formatted("{} {} of {} has failed again: it is left alone{}{}",
                             worker.place.is_spare ? "spare" : "slot", worker.place.slot, worker.place.host,
                             blocked ? formatted(" for {:.0f} s", *blocked) : std::string(),
                             is_told ? ", for the same reason" : "; the worker there " + story));
}

std::vector<int> ElasticJob::ranks() const {
  std::vector<int> numbers;
  for (const std::int32_t number : epoch_ == 0 ? invited_ : world_)
    if (!workers_.at(number).gone) numbers.push_back(number);
  return numbers;
}

std::vector<ElasticWorker> ElasticJob::alive() const {
  std::vector<ElasticWorker> all;
  for (const std::int32_t m : world_)
    if (const WorkerRecord& w = workers_.at(m); !w.gone && !w.dismissed_at) all.push_back(w.worker);
  for (const auto& [number, w] : workers_)
    if (!w.gone && !w.dismissed_at && !is_member(number)) all.push_back(w.worker);
  // A worker that surely has the newest state must not make room for other workers.  New workers of a broken world may
  // lack the state.  A worker that has left a world has an older state.
  const auto is_proven = [&](const ElasticWorker& w) { return workers_.at(w.number).is_proven; };
  const bool some_have_it = std::any_of(all.begin(), all.end(), is_proven);
  const bool some_have_the_newest =
      std::any_of(all.begin(), all.end(), [&](const auto& w) { return is_proven(w) && is_member(w.number); });
  for (ElasticWorker& w : all) {
    const bool may_lack_it = !is_proven(w) && (broken_ || !is_member(w.number));
    const bool is_in_doubt = some_have_the_newest ? may_lack_it || !is_member(w.number) : some_have_it && may_lack_it;
    if (w.stage != WorkerStage::member) continue;
    if (is_in_doubt) w.stage = WorkerStage::waiting;
    if (broken_ && !some_have_it) w.stage = WorkerStage::doubtful;
  }
  return all;
}

WorldPlan ElasticJob::plan(double now) const {
  std::vector<ElasticWorker> all = alive();
  const bool more_to_come = std::any_of(all.begin(), all.end(), [](const ElasticWorker& w) {
    return w.stage == WorkerStage::starting && !w.place.is_spare;
  });
  // A healthy world is interrupted once for all workers that were started together, not once for each worker.
  if (!broken_ && more_to_come && first_waits_at_ && now - *first_waits_at_ < gather_seconds)
    for (ElasticWorker& w : all)
      if (w.stage == WorkerStage::waiting && !w.place.is_spare) w.stage = WorkerStage::starting;
  return next_world(all, hosts_, limits_.world, history_.blocked(now));
}

ElasticOrders ElasticJob::turn(double now) {
  ElasticOrders orders;
  orders.lines = std::move(lines_);
  lines_.clear();
  if (epoch_ == 0 || is_over_) return orders;  // before the first world, the job behaves like a job of fixed ranks
  if (finishing_) {  // a member has ended well: workers that recover or begin have no work left
    std::vector<int> others;
    bool training = false;
    for (const auto& [number, w] : workers_) {
      if (w.gone || (!broken_ && is_member(number) && !w.meets_again)) continue;
      others.push_back(number);
      training = training || (!broken_ && is_member(number));
    }
    if (training && !std::exchange(tells_training_, true))
      orders.lines.push_back(
          formatted("rank {} has finished while other ranks still trained with it; they end too (does rank {} have "
                    "fewer steps, or end early?)",
                    finished_, finished_));
    dismiss(others, now, &orders);
    return orders;
  }
  const WorldPlan next = plan(now);
  promote(next, now, &orders);
  start(next, &orders);
  invite(next, &orders);
  dismiss(next.leave, now, &orders);
  end_late_ones(now, &orders);
  check_limits(next, now, &orders);
  return orders;
}

void ElasticJob::promote(const WorldPlan& plan, double now, ElasticOrders* orders) {
  for (const auto& [number, place] : plan.promote) {
    WorkerRecord& w = workers_.at(number);
    w.worker.place = place;
    w.was_spare = true;
    if (!first_waits_at_ && w.worker.stage == WorkerStage::waiting) first_waits_at_ = now;
    orders->promoted.push_back(w.worker);
  }
}

void ElasticJob::start(const WorldPlan& plan, ElasticOrders* orders) {
  for (const SlotPlace& place : plan.start) {
    if (place.is_spare && broken_) continue;  // starting a spare would take processor time from the recovery
    const ElasticWorker worker{next_number_++, place, WorkerStage::starting};
    workers_[worker.number] = {worker};
    orders->start.push_back(worker);
  }
  const bool slots_fill = std::any_of(plan.start.begin(), plan.start.end(), [](const auto& p) { return !p.is_spare; });
  if (!broken_ && slots_fill)
    orders->tell.assign(world_.begin(), world_.end());  // with HostChange::none: a change follows
}

void ElasticJob::invite(const WorldPlan& plan, ElasticOrders* orders) {
  const std::vector<std::int32_t> next =
      plan.suffices ? std::vector<std::int32_t>(plan.members.begin(), plan.members.end()) : std::vector<std::int32_t>{};
  if (next == invited_) return;
  invited_ = next;
  orders->invite = next;
  if (broken_ || next.empty() || next == world_) return;
  orders->change = change_to(next);
  orders->tell.assign(world_.begin(), world_.end());
}

HostChange ElasticJob::change_to(const std::vector<std::int32_t>& next) const {
  const auto lacks = [](const std::vector<std::int32_t>& all, std::int32_t one) {
    return std::find(all.begin(), all.end(), one) == all.end();
  };
  const bool added = std::any_of(next.begin(), next.end(), [&](std::int32_t m) { return lacks(world_, m); });
  const bool removed = std::any_of(world_.begin(), world_.end(), [&](std::int32_t m) { return lacks(next, m); });
  return added && removed ? HostChange::mixed : added ? HostChange::added : HostChange::removed;
}

/// Dismisses @p workers, and stops dismissed workers that do not leave.  Members of the world are dismissed only after
/// the next world has formed without them, or while the job finishes.
void ElasticJob::dismiss(const std::vector<int>& workers, double now, ElasticOrders* orders) {
  for (const int number : workers) {
    WorkerRecord* w = find(number);
    if (!w || w->gone || w->dismissed_at || (is_member(number) && !finishing_)) continue;
    w->dismissed_at = now;
    orders->dismiss.push_back(number);
  }
  for (auto& [number, w] : workers_) {
    if (w.gone || w.stopped || !w.dismissed_at || is_member(number)) continue;
    if (w.worker.stage != WorkerStage::starting && now - *w.dismissed_at < leave_seconds) continue;
    w.stopped = true;
    orders->stop.push_back(number);
  }
}

/// Tells the user about new workers that are not ready long after their init().  Stops them after prepare_seconds.
void ElasticJob::end_late_ones(double now, ElasticOrders* orders) {
  for (auto& [number, w] : workers_) {
    if (!w.prepares_since || w.worker.stage != WorkerStage::starting || w.gone || w.stopped || w.dismissed_at) continue;
    const double seconds = now - *w.prepares_since;
    if (seconds > limits_.prepare_seconds) {
      w.stopped = true;
      orders->stop.push_back(number);
      orders->lines.push_back(
          formatted("worker {} on {} was not ready {:.0f} s after its hvd.init() (--elastic-timeout): "
                    "it is ended",
                    number, w.worker.place.host, seconds));
    } else if (seconds > late_seconds && !w.is_late) {
      w.is_late = true;
      orders->lines.push_back(
          formatted("worker {} on {} has prepared for {:.0f} s since its hvd.init(); it is taken in "
                    "when it gets to hvd.elastic.run",
                    number, w.worker.place.host, seconds));
    }
  }
}

/// The largest world that the named hosts allow, now or after a slot's pause.
int ElasticJob::most_workers() const {
  const std::set<SlotPlace> lost = history_.blocked(std::numeric_limits<double>::infinity());
  std::set<SlotPlace> usable;
  for (const ElasticHost& host : hosts_)
    for (int slot = 0; slot < host.slots; ++slot)
      if (const SlotPlace place{host.name, slot}; !lost.contains(place)) usable.insert(place);
  for (const ElasticWorker& w : alive())  // a member may stay for a while after its host has left
    if (!w.place.is_spare) usable.insert(w.place);
  return static_cast<int>(usable.size());
}

/// Why the job has fewer slots than it began with.
std::string ElasticJob::lost_slots() const {
  std::vector<std::string> reasons;
  for (const SlotPlace& place : history_.blocked(std::numeric_limits<double>::infinity()))
    if (!place.is_spare && !left_hosts_.contains(place.host))
      reasons.push_back(formatted("slot {} of {} has failed twice", place.slot, place.host));
  constexpr std::size_t most_reasons = 4;
  if (reasons.size() > most_reasons) reasons = {formatted("{} slots have failed twice", reasons.size())};
  for (const std::string& host : left_hosts_) reasons.push_back("the job has left " + host);
  return join(reasons, "; ");
}

void ElasticJob::check_limits(const WorldPlan& plan, double now, ElasticOrders* orders) {
  if (limits_.most_resets && resets_ > *limits_.most_resets)
    orders->end = formatted("the world has changed {} times, and --reset-limit is {}", resets_, *limits_.most_resets);
  if (plan.suffices || !broken_) return too_few_since_.reset();
  if (const int most = most_workers(); !limits_.hosts_may_change && most < limits_.world.least) {
    orders->end = formatted("{} left, --min-np asks for {}, and no host can be added: {}", count_of(most, "slot"),
                            limits_.world.least, lost_slots());
    return;
  }
  if (!too_few_since_) {
    too_few_since_ = now;
    orders->lines.push_back(formatted(
        "{}: waiting up to {:.0f} s for {} of the {} that --min-np asks for", join(causes_, "; "), limits_.wait_seconds,
        static_cast<std::size_t>(limits_.world.least) - plan.members.size(), limits_.world.least));
  }
  if (now - *too_few_since_ > limits_.wait_seconds)
    orders->end = formatted("{} left, --min-np asks for {}, and no more came in {:.0f} s (--elastic-timeout)",
                            count_of(static_cast<long long>(plan.members.size()), "rank"), limits_.world.least,
                            limits_.wait_seconds);
}

}  // namespace hvd::launcher
