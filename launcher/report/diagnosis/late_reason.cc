#include "launcher/report/diagnosis/late_reason.h"

#include <algorithm>

namespace hvd::launcher {

bool is_seen_by_hook(Delay delay) {
  return delay == Delay::input || delay == Delay::saving || delay == Delay::collecting || delay == Delay::compiling;
}

Delay reason_of(const LateRanks& l) {
  DelaySeconds excess{};
  for (std::size_t i = 0; i < delay_kinds; ++i) {
    const auto part = [i](const RankMeans& m) { return m.parts[i]; };
    excess[i] = mean_of(l.late, part) - median_of(l.others, part);
  }
  double& computing = excess[static_cast<std::size_t>(Delay::computing)];
  double& no_core = excess[static_cast<std::size_t>(Delay::no_core)];
  if (computing > 0 && no_core > 0) {
    const double of_its_work = std::min(no_core, core_wait_per_work(l) * computing);
    computing += of_its_work, no_core -= of_its_work;
  }
  const auto most = [&](bool hooks) {
    std::size_t at = delay_kinds - 1;
    for (std::size_t i = 0; i < delay_kinds; ++i)
      if ((hooks || !is_seen_by_hook(static_cast<Delay>(i))) && excess[i] > excess[at]) at = i;
    return static_cast<Delay>(at);
  };
  const Delay delay = most(true);
  return is_seen_by_hook(delay) && part_of(excess, delay) < l.lost / 2 ? most(false) : delay;
}

double core_wait_per_work(const LateRanks& l) {
  const auto no_core = [](const RankMeans& m) { return part_of(m.parts, Delay::no_core); };
  const auto computing = [](const RankMeans& m) { return part_of(m.parts, Delay::computing); };
  const double others_work = median_of(l.others, computing), work = mean_of(l.late, computing);
  if (others_work <= 0 || work <= 0) return 0;
  return std::min(median_of(l.others, no_core) / others_work, mean_of(l.late, no_core) / work);
}

bool stops_alone(const LateRanks& l, std::size_t stretches, double least_seconds) {
  constexpr int enough_stretches = 6;
  constexpr double hardly = 0.25;  // of the rank's own stops
  if (l.late.size() != 1) return false;
  const RankSums& late = *l.late.front().sums;
  double of_it = 0, of_others = 0;
  int stopped_longest = 0;
  for (std::size_t i = 0; i < stretches; ++i) {
    double others = 0;
    for (const RankMeans& m : l.others)
      others = std::max(others, static_cast<double>(m.sums->stretches[i].stopped_seconds));
    const auto own = static_cast<double>(late.stretches[i].stopped_seconds);
    stopped_longest += own > 2 * others;
    of_it += own, of_others += others;
  }
  return (stopped_longest >= enough_stretches || late.stops.are_regular()) && of_others <= hardly * of_it &&
         of_it > least_seconds;
}

bool is_own(Delay delay, const RankMeans& rank, const std::vector<RankMeans>& ranks) {
  constexpr double most_of_all = 0.75;
  double all = 0;
  std::vector<RankMeans> others;
  for (const RankMeans& m : ranks) {
    all += part_of(m.sums->late_by, delay);
    if (m.rank != rank.rank) others.push_back(m);
  }
  const double usual = median_of(others, [delay](const RankMeans& m) { return part_of(m.parts, delay); });
  return part_of(rank.sums->late_by, delay) >= most_of_all * all && part_of(rank.parts, delay) >= times_longer * usual;
}

}  // namespace hvd::launcher
