#include "launcher/hang/collective_waits.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr double ask_every = 2, ask_old_every = 10, old_wait = 30;
constexpr double answers_take = 1;           // ranks are asked this long before a wait is reported
constexpr double most_usual = 60;            // longest patience in a job with long pauses between collectives
constexpr double patience_with_faults = 4;   // the calls do not fit together
constexpr double patience_with_stuck = 8;    // all ranks have enqueued the collective: its data may be under way
constexpr double patience_with_queued = 20;  // the same on GPUs, which may still compute

/// "WORLD_SIZE is 2 on rank 0, 3 on rank 1"; empty: the value is the same on all ranks.
std::string unlike(const char* name, const std::map<std::string, std::vector<int>>& by_value) {
  if (by_value.size() < 2) return {};
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : by_value) parts.push_back(value + " on " + ranks_text(ranks));
  return formatted("{} is {}", name, join(parts, ", "));
}

/// "ranks 0-1 are at train.py:8 (main)": a line for each place, three at most.
std::vector<std::string> start_places(const std::map<int, wire::GroupStart>& starts) {
  std::map<std::string, std::vector<int>> by_place;
  for (const auto& [rank, start] : starts)
    if (!start.place.empty()) by_place[start.place].push_back(rank);
  std::vector<std::string> lines;
  for (const auto& [place, ranks] : by_place)
    if (lines.size() < 3) lines.push_back(ranks_text(ranks, "is at " + place));
  return lines;
}

}  // namespace

std::vector<std::string> start_faults(const std::map<int, wire::GroupStart>& starts, int size) {
  std::map<std::string, std::vector<int>> worlds, stores;
  std::map<int, std::vector<int>> numbers;
  std::vector<std::string> lines;
  int world = 0;
  bool has_numbers = true;
  for (const auto& [rank, start] : starts) {
    if (start.world > 0) worlds[std::to_string(start.world)].push_back(rank), world = start.world;
    if (!start.address.empty()) stores[formatted("{}:{}", start.address, start.port)].push_back(rank);
    numbers[start.rank].push_back(rank);
    has_numbers = has_numbers && start.rank >= 0;
  }
  if (std::string line = unlike("WORLD_SIZE", worlds); !line.empty()) lines.push_back(std::move(line));
  if (std::string line = unlike("MASTER_ADDR:MASTER_PORT", stores); !line.empty()) lines.push_back(std::move(line));
  if (worlds.size() == 1 && world > size)
    lines.push_back(formatted("WORLD_SIZE is {}, but the job has {}", world, count_of(size, "rank")));
  if (has_numbers && static_cast<int>(starts.size()) == size && !numbers.contains(0))
    lines.emplace_back("none of them has RANK 0, which serves the store");
  for (const auto& [number, ranks] : numbers)
    if (number >= 0 && ranks.size() > 1 && stores.size() < 2)
      lines.push_back(formatted("{} all have RANK {}", ranks_text(ranks), number));
  for (const auto& [rank, start] : starts)
    if (!start.refused.empty() && numbers.contains(0) && lines.size() < 4)
      lines.push_back(formatted("rank {} cannot connect to {}:{}: {}", rank, start.address, start.port, start.refused));
  return lines;
}

void CollectiveWaits::take(int rank, const wire::CollectiveWait& wait, double now) {
  const auto before = waits_.find(rank);
  if (before != waits_.end() && before->second.told.init && !wait.init) through_.insert(rank);
  if (wait.what.empty() && !wait.init)
    waits_.erase(rank);
  else
    waits_[rank] = {wait, now};
  drop_ended();
}

void CollectiveWaits::rank_ended(int rank) {
  waits_.erase(rank);
  drop_ended();
}

/// Drops each difference whose ranks have all stopped waiting.  A rank without a pending collective does not wait.
void CollectiveWaits::drop_ended() {
  const auto waits = [&](int rank) {
    const auto it = waits_.find(rank);
    return it != waits_.end() && !it->second.told.what.empty();
  };
  std::erase_if(differences_,
                [&](const Difference& d) { return std::none_of(d.what.waiting.begin(), d.what.waiting.end(), waits); });
}

bool CollectiveWaits::must_ask(double now) {
  if (asking_ || now < next_ask_) return false;
  std::optional<double> longest;
  for (const auto& [rank, wait] : waits_)
    if (!wait.told.what.empty()) longest = std::max(longest.value_or(0), now - wait.since());
  if (!longest || *longest < patience_ - answers_take) return false;
  next_ask_ = now + (*longest > old_wait ? ask_old_every : ask_every);
  return asking_ = true;
}

void CollectiveWaits::answered(const wire::JobCollectives& job, double now) {
  asking_ = false;
  differences_.clear();
  wire::JobCollectives records = job;
  if (elastic_)
    for (auto& [rank, told] : records) told.call.reset();
  for (wire::CollectiveDifference& d : collective_differences(records)) {
    const auto has_answered = [&](int rank) { return job.contains(rank); };
    if (elastic_ && !std::all_of(d.missing.begin(), d.missing.end(), has_answered)) continue;
    const double since = now - d.seconds;
    differences_.push_back({std::move(d), since});
  }
  drop_ended();
}

std::vector<Incident> CollectiveWaits::incidents(double now, int size) const {
  std::vector<Incident> found;
  for (const auto& [d, since] : differences_) {
    const bool is_queued = d.fault == wire::CollectiveFault::queued;
    const bool is_stuck = is_queued || d.fault == wire::CollectiveFault::stuck;
    const double least = is_queued  ? std::max(patience_, patience_with_queued)
                         : is_stuck ? std::max(patience_, patience_with_stuck)
                                    : patience_;
    if (now - since < std::max(least, std::min(2 * d.usual_seconds, most_usual))) continue;
    Incident i{is_stuck ? IncidentKind::stuck : IncidentKind::operation,
               d.missing,
               0,
               static_cast<int>(d.waiting.size()),
               since,
               d.what,
               1};
    if (d.fault == wire::CollectiveFault::different) i.headline = d.what, i.tensor = "it";
    i.details = d.details;
    if (!elastic_) add_start_faults(d.missing, size, i.details);
    if (d.fault == wire::CollectiveFault::cycle && &d == &differences_.back().what)
      i.details.emplace_back("these ranks wait for each other");
    found.push_back(std::move(i));
  }
  if (found.empty() && !elastic_) add_starts(now, size, found);
  return found;
}

/// Some missing ranks may still wait in init_process_group().  Adds why their calls cannot succeed.
void CollectiveWaits::add_start_faults(const std::vector<int>& missing, int size,
                                       std::vector<std::string>& lines) const {
  std::map<int, wire::GroupStart> starts;
  for (const int rank : missing)
    if (const auto it = waits_.find(rank); it != waits_.end() && it->second.told.init)
      starts[rank] = *it->second.told.init;
  for (std::string& fault : start_faults(starts, size)) lines.push_back(std::move(fault));
}

/// Adds an incident when ranks have waited too long in init_process_group().  `missing`: the ranks that have not called
/// that function.
void CollectiveWaits::add_starts(double now, int size, std::vector<Incident>& found) const {
  std::map<int, wire::GroupStart> starts;
  double last = 0;
  int world = size;
  for (const auto& [rank, wait] : waits_)
    if (wait.told.init) {
      starts[rank] = *wait.told.init;
      last = std::max(last, wait.init_since());
      if (wait.told.init->world > 0) world = wait.told.init->world;
    }
  if (starts.empty()) return;
  Incident i{IncidentKind::init, {}, 0, static_cast<int>(starts.size()), last, "init_process_group()", 0};
  const std::vector<std::string> faults = start_faults(starts, size);
  i.details = start_places(starts);
  i.details.insert(i.details.end(), faults.begin(), faults.end());
  const bool enough = static_cast<int>(starts.size() + through_.size()) >= world;
  for (int rank = 0; rank < size && !enough; ++rank)
    if (!starts.contains(rank) && !through_.contains(rank)) i.missing.push_back(rank);
  const double wait = now - last;
  if (wait < (!faults.empty()     ? patience_with_faults
              : i.missing.empty() ? patience_with_all_at_init
                                  : patience_with_late_at_init))
    return;
  found.push_back(std::move(i));
}

}  // namespace hvd::launcher
