#include "launcher/supervise/start/elastic_part.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "launcher/hosts/resolve.h"
#include "launcher/remote/start_failure.h"

namespace hvd::launcher {
namespace {

constexpr const char* unneeded = "the job needs it no more";

/// @param launch_agent  may know names that this machine does not
HostLookup::LookUp lookup_with(const std::vector<std::string>& launch_agent) {
  return [launch_agent](const std::string& name) {
    Allocation one;
    one.launch_agent = launch_agent;
    add_host(one, name, 1, name);
    return resolve(one).at(0);
  };
}

std::vector<ElasticWorker> first_workers(const ElasticPlan& plan) {
  std::vector<ElasticWorker> workers;
  for (const auto& [number, place] : plan.places) workers.push_back({number, place, WorkerStage::starting});
  return workers;
}

}  // namespace

ElasticPart::ElasticPart(Job& job, Session& session, Printer& printer, JobLaunch& launch, EventSink events)
    : job_(job),
      session_(session),
      printer_(printer),
      launch_(launch),
      events_(std::move(events)),
      elastic_(job.elastic->limits, first_workers(*job.elastic), job.elastic->hosts,
               SlotHistory(job.elastic->cooldown, static_cast<unsigned>(monotonic_ns()))),
      discovery_(job.elastic->source),
      lookup_(lookup_with(job.launch_agent)) {
  for (const ResolvedHost& host : job.hosts) addresses_[host.host] = host;
  session_.become_elastic();
}

bool ElasticPart::survives(const wire::DeathRecord& death, double now) {
  const std::int64_t cut_ns = session_.ranks()[static_cast<std::size_t>(death.rank)].cut_ns;
  std::optional<double> since;
  if (cut_ns > 0) since = now - static_cast<double>(monotonic_ns() - cut_ns) / 1e9;
  const bool lives = elastic_.survives(death, now, since);
  if (lives && !death.traceback.empty() && !death.traceback_shown)
    printer_.rank_text(death.rank, death.traceback, true);
  if (lives) printer_.close_files(death.rank);
  is_over_ = !lives;
  carry_out(elastic_.turn(now));  // the survivors' next world is known before they ask for it
  return lives;
}

void ElasticPart::turn(double now) {
  look_at_hosts();
  miss_late_ones(now);
  carry_out(elastic_.turn(now));
  drop_unneeded();
  if (elastic_.is_finishing()) to_start_.clear();
  start(now);
}

void ElasticPart::carry_out(const ElasticOrders& orders) {
  for (const std::string& line : orders.lines) printer_.say("hvdrun: " + line);
  if (is_over_) return;
  if (!orders.end.empty()) return events_(ElasticOver{orders.end});
  to_start_.insert(to_start_.end(), orders.start.begin(), orders.start.end());
  for (const ElasticWorker& worker : orders.promoted) {
    job_.elastic->places[worker.number] = worker.place;
    for (ElasticWorker& waits : to_start_)
      if (waits.number == worker.number) waits.place = worker.place;
  }
  if (orders.invite) session_.daemons().invite(*orders.invite);
  for (const int number : orders.tell)
    session_.tell(number, wire::Type::host_change, {static_cast<char>(orders.change)});
  for (const int number : orders.dismiss)
    session_.daemons().dismiss(number);  // also workers that have not been started yet
  unneeded_.insert(orders.stop.begin(), orders.stop.end());
}

/// Stops workers once they have come.  A host's daemon that has not come may never come, so its workers are given up.
void ElasticPart::drop_unneeded() {
  std::set<int> kept;
  for (const int number : std::exchange(unneeded_, {})) {
    const bool is_absent =
        !is_started(number) || session_.ranks()[static_cast<std::size_t>(number)].stage == RankStage::absent;
    const auto due = due_.find(number);
    if (!is_absent) {
      session_.stop_rank(number, unneeded, job_.settings.number("grace"));
    } else if (due == due_.end()) {
      if (!is_started(number)) kept.insert(number);  // it starts in this turn
    } else if (const int host = job_.map.ranks[static_cast<std::size_t>(number)].host;
               session_.daemons().has_come(host)) {
      kept.insert(number);
    } else {
      due_.erase(due);
      session_.daemons().give_up(host);
      session_.vanish(number, unneeded);
    }
  }
  unneeded_.merge(kept);
}

void ElasticPart::look_at_hosts() {
  HostDiscovery::Discovered found = discovery_.turn(monotonic_seconds());
  if (!found.line.empty()) printer_.say("hvdrun: " + found.line);
  if (found.hosts) named_ = std::move(found.hosts);
  if (!named_) return;
  std::vector<ElasticHost> usable;  // a worker on another host would wait for the name service
  for (const ElasticHost& host : *named_) {
    if (!addresses_.contains(host.name) && living_host(host.name) < 0) look_up(host.name);
    if (addresses_.contains(host.name) || living_host(host.name) >= 0) usable.push_back(host);
  }
  const bool all = usable.size() == named_->size();
  elastic_.hosts_are(std::move(usable));
  if (all) named_.reset();
}

void ElasticPart::look_up(const std::string& name) {
  HostLookup::Answer answer = lookup_.ask(name, monotonic_seconds());
  if (!answer.line.empty()) printer_.say("hvdrun: " + answer.line);
  if (answer.host) addresses_[name] = std::move(*answer.host);
}

bool ElasticPart::is_started(int worker) const { return static_cast<std::size_t>(worker) < session_.ranks().size(); }

/// Gives up workers whose host, daemon or guard has not connected in time.
void ElasticPart::miss_late_ones(double now) {
  std::vector<int> missing, orphaned;
  std::erase_if(due_, [&](const auto& one) {
    const auto number = static_cast<std::size_t>(one.first);
    const int host = job_.map.ranks[number].host;
    if (session_.ranks()[number].stage != RankStage::absent) {
      host_troubles_.erase(job_.map.hosts[static_cast<std::size_t>(host)].name);
      return true;
    }
    const bool is_orphaned = session_.daemons().is_gone(host);
    if (!is_orphaned && now < one.second) {
      tell_of_host(host, one.second - now);
      return false;
    }
    (is_orphaned ? orphaned : missing).push_back(one.first);
    return true;
  });
  for (const int number : missing) {
    const int host = job_.map.ranks[static_cast<std::size_t>(number)].host;
    const bool has_daemon = session_.daemons().has_come(host);
    session_.daemons().give_up(host);  // the next worker there gets a new daemon
    const DaemonReport found = launch_.report(host);
    const std::string& name = job_.map.hosts[static_cast<std::size_t>(host)].name;
    session_.vanish(number, "did not come up within " + job_.settings.text("start-timeout") + " s" +
                                (has_daemon ? "" : ": " + why_no_daemon(name, found.said, found.status)));
  }
  // hvdrun often learns of a guard's end before it learns of the daemon's end.  So it has asked a dead daemon to start
  // these workers.
  for (const int number : orphaned) {
    elastic_.withdraw(number);
    session_.vanish(number, "its host's daemon has gone");
  }
}

void ElasticPart::tell_of_host(int host, double seconds_left) {
  if (session_.daemons().has_come(host)) return;
  const DaemonReport found = launch_.report(host);
  if (!found.status) return;
  const std::string& name = job_.map.hosts[static_cast<std::size_t>(host)].name;
  const std::string why = why_no_daemon(name, found.said, found.status);
  if (std::exchange(host_troubles_[name], why) == why) return;
  printer_.say(
      formatted("hvdrun: no worker comes up on {}: {}; it is tried again in {:.0f} s", name, why, seconds_left));
}

/// The host's index in the map, where all names of this machine are one host.  -1: not there, or its daemon has gone.
int ElasticPart::living_host(const std::string& name) const {
  for (std::size_t h = job_.map.hosts.size(); h-- > 0;) {
    const bool is_it = job_.map.hosts[h].name == name || (job_.elastic->here.contains(name) && job_.map.hosts[h].local);
    if (is_it && !session_.daemons().is_gone(static_cast<int>(h))) return static_cast<int>(h);
  }
  return -1;
}

int ElasticPart::host_for(const std::string& name) {
  if (const int known = living_host(name); known >= 0) return known;
  look_up(name);  // it may have another address than before
  return add_host(addresses_.try_emplace(name, ResolvedHost{.host = name}).first->second);
}

int ElasticPart::add_host(const ResolvedHost& found) {
  const std::string& name = found.host;
  if (found.local) job_.elastic->here.insert(name);
  if (const int known = living_host(name); known >= 0) return known;
  if (!found.reach_us.empty() && std::ranges::find(job_.reach_us, found.reach_us) == job_.reach_us.end())
    job_.reach_us.push_back(found.reach_us);
  job_.hosts.push_back(found);
  job_.map.hosts.push_back({name, found.local, 0, {}});
  job_.machines.emplace_back();
  return session_.daemons().add_host(name);
}

MappedRank ElasticPart::place(const ElasticWorker& worker, int host) const {
  MappedRank rank{worker.number, host, 0, 1, 0, 1, {}, worker.place.is_spare};
  std::set<int> taken;
  for (const MappedRank& other : job_.map.ranks) {
    if (other.host != host || other.is_spare) continue;
    rank.local_size = std::max(rank.local_size, other.local_size);
    if (session_.ranks()[static_cast<std::size_t>(other.rank)].stage < RankStage::ended) taken.insert(other.local_rank);
  }
  if (rank.is_spare) {
    rank.local_rank = rank.local_size++;
    return rank;
  }
  while (taken.contains(rank.local_rank)) ++rank.local_rank;
  rank.local_size = std::max(rank.local_size, rank.local_rank + 1);
  // The rank takes over the share of the worker in whose place it starts.
  for (const MappedRank& other : job_.map.ranks)
    if (other.host == host && !other.is_spare && other.local_rank == rank.local_rank) rank.share = other.share;
  return rank;
}

void ElasticPart::start(double now) {
  std::map<int, std::vector<int>> fresh;  // host → workers that its daemon begins with
  std::set<int> unheard;
  for (const ElasticWorker& worker : std::exchange(to_start_, {})) {
    const int host = host_for(worker.place.host);
    if (job_.map.hosts[static_cast<std::size_t>(host)].ranks == 0) unheard.insert(host);
    const MappedRank rank = place(worker, host);
    job_.elastic->places[worker.number] = worker.place;
    job_.map.ranks.push_back(rank);
    ++job_.map.hosts[static_cast<std::size_t>(host)].ranks;
    printer_.add_rank(worker.place.host);
    const bool is_fresh = unheard.contains(host);
    session_.start_rank(launch_.manifest(rank), host, is_fresh);
    due_[worker.number] = now + job_.settings.number("start-timeout");
    if (is_fresh) fresh[host].push_back(worker.number);
  }
  for (const auto& [host, numbers] : fresh) start_host(host, numbers);
}

/// Starts a host's daemon.  If this process cannot, the host's workers count as failed, and the other workers continue.
void ElasticPart::start_host(int host, const std::vector<int>& workers) {
  try {
    launch_.start_host(host, workers);
  } catch (const Error& e) {
    const std::string& name = job_.map.hosts[static_cast<std::size_t>(host)].name;
    if (std::exchange(host_troubles_[name], e.what()) != e.what())
      printer_.say(formatted("hvdrun: no worker comes up on {}: {}", name, e.what()));
    session_.daemons().give_up(host);
    for (const int number : workers) {
      due_.erase(number);
      session_.vanish(number, std::string("the daemon of its host could not be started: ") + e.what());
    }
  }
}

}  // namespace hvd::launcher
