#include "timeline_diff.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/text.h"
#include "table_text.h"

namespace hvd::timeline {

namespace {

constexpr double worth_a_word = 0.05;  ///< the share of a mean from which a change is named
constexpr std::size_t most_ranks_shown = 16;

double mean_wait(const ArrivalSummary& arrival, std::uint64_t operations) {
  return operations == 0 ? 0 : arrival.waited_us / static_cast<double>(operations);
}

double share(const ArrivalSummary& arrival, std::uint64_t operations) {
  return operations == 0 ? 0 : static_cast<double>(arrival.last) / static_cast<double>(operations);
}

std::vector<EventChange> changes_of_events(const TimelineReport& before, const TimelineReport& after) {
  std::map<std::string, EventChange> changes;
  for (const EventSummary& e : before.kinds) {
    EventChange& change = changes[e.name];
    change.before_count = e.count;
    change.before_us = e.mean_us;
  }
  for (const EventSummary& e : after.kinds) {
    EventChange& change = changes[e.name];
    change.after_count = e.count;
    change.after_us = e.mean_us;
    if (change.before_count > 0) change.added_us = (e.mean_us - change.before_us) * static_cast<double>(e.count);
  }
  std::vector<EventChange> all;
  for (auto& [name, change] : changes) {
    change.name = name;
    all.push_back(std::move(change));
  }
  std::stable_sort(all.begin(), all.end(), [](const EventChange& a, const EventChange& b) {
    return std::abs(a.added_us) > std::abs(b.added_us);
  });
  return all;
}

std::vector<ArrivalChange> changes_of_arrivals(const TimelineReport& before, const TimelineReport& after) {
  std::map<std::int64_t, ArrivalChange> changes;
  for (const ArrivalSummary& a : before.arrivals) {
    changes[a.rank].before_share = share(a, before.operations_compared);
    changes[a.rank].before_us = mean_wait(a, before.operations_compared);
  }
  for (const ArrivalSummary& a : after.arrivals) {
    changes[a.rank].after_share = share(a, after.operations_compared);
    changes[a.rank].after_us = mean_wait(a, after.operations_compared);
  }
  std::vector<ArrivalChange> all;
  for (auto& [rank, change] : changes) {
    change.rank = rank;
    all.push_back(change);
  }
  std::stable_sort(all.begin(), all.end(), [](const ArrivalChange& a, const ArrivalChange& b) {
    return std::abs(a.after_us - a.before_us) > std::abs(b.after_us - b.before_us);
  });
  return all;
}

/// "+12 %"
std::string percents(double before, double after) {
  return before > 0 ? formatted("{:+.0f} %", 100 * (after / before - 1)) : "";
}

/// The changes that a reader should examine first.
std::string sentence(const TimelineDiff& diff) {
  const auto worse = std::find_if(diff.events.begin(), diff.events.end(), [](const EventChange& e) {
    return e.added_us > 0 && e.after_us > e.before_us * (1 + worth_a_word);
  });
  std::string text;
  if (worse != diff.events.end())
    text = formatted("{} takes {} in the second, {:.1f} instead of {:.1f} us: {:.1f} ms more a rank\n",
                     printable(worse->name), percents(worse->before_us, worse->after_us), worse->after_us,
                     worse->before_us,
                     worse->added_us / 1e3 / static_cast<double>(std::max<std::uint64_t>(diff.after.ranks, 1)));
  if (!diff.arrivals.empty()) {
    const ArrivalChange& rank = diff.arrivals.front();
    if (rank.after_us > rank.before_us * (1 + worth_a_word) && rank.after_us - rank.before_us > 1)
      text += formatted("rank {} comes later: the others wait {:.1f} us an operation for it, before {:.1f}\n",
                        rank.rank, rank.after_us, rank.before_us);
  }
  return text.empty() ? "nothing takes longer in the second by a twentieth\n" : text;
}

std::string about(const char* which, const TimelineReport& report) {
  return formatted("{}: {}, {} ranks, {:.3f} s{}\n", which, printable(report.file), report.ranks, report.span_us / 1e6,
                   report.cut_off ? ", has no end: its job still records, or its writer was killed" : "");
}

}  // namespace

TimelineDiff make_diff(const std::string& before, const std::string& after) {
  TimelineDiff diff{make_report(before), make_report(after), {}, {}};
  diff.events = changes_of_events(diff.before, diff.after);
  diff.arrivals = changes_of_arrivals(diff.before, diff.after);
  return diff;
}

std::string to_text(const TimelineDiff& diff) {
  std::string text = about("first ", diff.before) + about("second", diff.after) + "\n" + sentence(diff);
  text += printed("\n%-32s %10s %10s %12s %12s %8s %12s\n", "event", "count", "count", "mean us", "mean us", "change",
                  "added ms");
  for (const EventChange& e : diff.events)
    text += printed("%-32.64s %10llu %10llu %12.1f %12.1f %8s %12.3f\n", printable(e.name).c_str(),
                    static_cast<unsigned long long>(e.before_count), static_cast<unsigned long long>(e.after_count),
                    e.before_us, e.after_us, e.after_count > 0 ? percents(e.before_us, e.after_us).c_str() : "",
                    e.added_us / 1e3);
  if (diff.arrivals.empty()) return text;
  text += printed("\n%-10s %12s %12s %20s %20s\n", "rank", "came last", "came last", "others waited us",
                  "others waited us");
  for (std::size_t i = 0; i < std::min(diff.arrivals.size(), most_ranks_shown); ++i) {
    const ArrivalChange& a = diff.arrivals[i];
    text += printed("%-10lld %10.0f %% %10.0f %% %20.1f %20.1f\n", static_cast<long long>(a.rank), 100 * a.before_share,
                    100 * a.after_share, a.before_us, a.after_us);
  }
  if (diff.arrivals.size() > most_ranks_shown)
    text += printed("and %zu ranks more\n", diff.arrivals.size() - most_ranks_shown);
  return text;
}

std::string to_json(const TimelineDiff& diff) {
  using Json = nlohmann::ordered_json;
  const auto rounded = [](double value) { return std::round(value * 1e3) / 1e3; };
  const auto file = [&](const TimelineReport& r) {
    return Json{{"file", r.file}, {"ranks", r.ranks}, {"span_us", rounded(r.span_us)}, {"cut_off", r.cut_off}};
  };
  Json events = Json::array(), arrivals = Json::array();
  for (const EventChange& e : diff.events)
    events.push_back({{"name", e.name},
                      {"count", {e.before_count, e.after_count}},
                      {"mean_us", {rounded(e.before_us), rounded(e.after_us)}},
                      {"added_us", rounded(e.added_us)}});
  for (const ArrivalChange& a : diff.arrivals)
    arrivals.push_back({{"rank", a.rank},
                        {"last_share", {rounded(a.before_share), rounded(a.after_share)}},
                        {"others_waited_us", {rounded(a.before_us), rounded(a.after_us)}}});
  const Json json{{"first", file(diff.before)},
                  {"second", file(diff.after)},
                  {"events", std::move(events)},
                  {"arrivals", std::move(arrivals)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace hvd::timeline
