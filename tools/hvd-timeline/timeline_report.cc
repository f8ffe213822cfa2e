#include "timeline_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "event_reader.h"
#include "table_text.h"
#include "trace/trace_names.h"

namespace hvd::timeline {

namespace {

enum class EventClass : std::uint8_t { operation, negotiation, phase };

EventClass class_of(std::string_view name) {
  if (name.starts_with("NEGOTIATE_")) return EventClass::negotiation;
  for (std::uint8_t op = 0; op < trace::trace_ops; ++op)
    if (name == trace::op_name(static_cast<trace::TraceOp>(op))) return EventClass::operation;
  return EventClass::phase;
}

std::uint64_t bytes_of_dtype(std::string_view dtype) {
  if (dtype.ends_with("64")) return 8;
  if (dtype.ends_with("32")) return 4;
  if (dtype.ends_with("16")) return 2;
  return 1;
}

/// Returns the string value of a key in an event's arguments. libhvd and Horovod write no escapes there.
std::string argument(std::string_view arguments, std::string_view key) {
  const std::string quoted = '"' + std::string(key) + '"';
  std::size_t at = arguments.find(quoted);
  if (at == std::string_view::npos) return {};
  at = arguments.find('"', at + quoted.size());
  if (at == std::string_view::npos) return {};
  const std::size_t end = arguments.find('"', at + 1);
  return end == std::string_view::npos ? std::string{} : std::string(arguments.substr(at + 1, end - at - 1));
}

using RowKey = std::pair<std::int64_t, std::int64_t>;  // pid, tid

/// Slices of one name while the file is read.
struct DurationList {
  std::vector<float> us;
  double total_us = 0;
  std::uint64_t bytes = 0;

  void add(double duration_us) {
    us.push_back(static_cast<float>(duration_us));
    total_us += duration_us;
  }
};

class ReportBuilder {
 public:
  void take(const TimelineEvent& event) {
    if (event.phase == 'M') {
      if (event.name == "process_name") pids_.insert(event.pid);
      return;
    }
    first_us_ = std::min(first_us_, event.ts_us);
    last_us_ = std::max(last_us_, event.ts_us + event.dur_us);
    const RowKey row{event.pid, event.tid};
    if (event.phase == 'X' && event.dur_us == 0 && is_number(event.name)) return arrived(row, event);  // Horovod's mark
    if (event.phase == 'X') return slice(std::string(event.name), event.dur_us, event.arguments);
    if (event.phase == 'B') open_[row].emplace_back(event.name, event.ts_us);
    if (event.phase == 'E') end(row, event);
    if (event.phase == 'i' && is_number(event.name)) arrived(row, event);
    constexpr std::string_view agreement = "agreement: ";
    if (event.phase == 'i' && event.name.starts_with(agreement))
      ++findings_[std::string(event.name.substr(agreement.size()))];
  }

  void finish(TimelineReport& report) {
    report.ranks = pids_.size();
    report.span_us = last_us_ > first_us_ ? last_us_ - first_us_ : 0;
    for (const auto& [row, events] : open_) report.unfinished += events.size();
    for (auto& [name, durations] : durations_) report.kinds.push_back(summarise(name, durations));
    std::sort(report.kinds.begin(), report.kinds.end(), [](const EventSummary& a, const EventSummary& b) {
      const EventClass left = class_of(a.name), right = class_of(b.name);
      return left != right ? left < right : a.total_us > b.total_us;
    });
    compare_arrivals(report);
    report.findings = std::move(findings_);
  }

 private:
  static bool is_number(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  void slice(const std::string& name, double duration_us, std::string_view arguments) {
    DurationList& durations = durations_[name];
    durations.add(duration_us);
    if (!arguments.empty())
      durations.bytes += elements_of(argument(arguments, "shape")) * bytes_of_dtype(argument(arguments, "dtype"));
  }

  void end(const RowKey& row, const TimelineEvent& event) {
    auto& open = open_[row];
    if (open.empty()) return;
    const auto [name, begin_us] = open.back();
    open.pop_back();
    slice(name, event.ts_us - begin_us, event.arguments);
  }

  void arrived(const RowKey& row, const TimelineEvent& event) {
    std::int64_t rank = 0;
    std::from_chars(event.name.data(), event.name.data() + event.name.size(), rank);
    marks_[row][rank].push_back(event.ts_us);
  }

  static EventSummary summarise(const std::string& name, DurationList& durations) {
    std::vector<float>& us = durations.us;
    const std::size_t rank = us.size() - 1 - us.size() / 100;
    std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(rank), us.end());
    return {name,
            us.size(),
            durations.bytes,
            durations.total_us,
            durations.total_us / static_cast<double>(us.size()),
            us[rank],
            *std::max_element(us.begin(), us.end())};
  }

  /// The n-th marks of all ranks in one row belong to one operation.
  void compare_arrivals(TimelineReport& report) {
    std::map<std::int64_t, ArrivalSummary> arrivals;
    for (auto& [row, ranks] : marks_) {
      std::size_t operations = ranks.size() > 1 ? SIZE_MAX : 0;
      for (auto& [rank, times] : ranks) {
        std::sort(times.begin(), times.end());
        operations = std::min(operations, times.size());
      }
      for (std::size_t i = 0; i < operations; ++i) {
        std::int64_t last = -1;
        double last_us = -1, before_us = -1;
        for (const auto& [rank, times] : ranks) {
          if (times[i] > last_us) {
            before_us = last_us;
            last_us = times[i];
            last = rank;
          } else {
            before_us = std::max(before_us, times[i]);
          }
        }
        ArrivalSummary& arrival = arrivals[last];
        ++arrival.last;
        arrival.waited_us += last_us - before_us;
        ++report.operations_compared;
      }
    }
    for (auto& [rank, arrival] : arrivals) {
      arrival.rank = rank;
      report.arrivals.push_back(arrival);
    }
    std::sort(report.arrivals.begin(), report.arrivals.end(),
              [](const ArrivalSummary& a, const ArrivalSummary& b) { return a.waited_us > b.waited_us; });
  }

  std::set<std::int64_t> pids_;
  std::map<std::string, std::uint64_t> findings_;
  std::map<std::string, DurationList> durations_;
  std::map<RowKey, std::vector<std::pair<std::string, double>>> open_;
  std::map<RowKey, std::map<std::int64_t, std::vector<double>>> marks_;
  double first_us_ = 1e300, last_us_ = 0;
};

}  // namespace

std::uint64_t elements_of(const std::string& shape) {
  if (shape.size() < 2 || shape.front() != '[' || shape.back() != ']') return 0;
  std::uint64_t product = 1;
  const char* at = shape.data() + 1;
  const char* const end = shape.data() + shape.size() - 1;
  while (at != end) {
    std::uint64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc{}) return 0;
    product *= dim;
    at = next;
    while (at != end && (*at == ',' || *at == ' ')) ++at;
  }
  return product;
}

TimelineReport make_report(const std::string& path) {
  EventReader reader(path);
  ReportBuilder reading;
  TimelineEvent event;
  while (reader.next(event)) reading.take(event);
  TimelineReport report;
  report.file = path;
  report.cut_off = reader.cut_off();
  reading.finish(report);
  return report;
}

std::string to_text(const TimelineReport& report) {
  std::string text = printed("%s: %llu rank(s), %.3f s%s\n", report.file.c_str(),
                             static_cast<unsigned long long>(report.ranks), report.span_us / 1e6,
                             report.cut_off ? ", has no end: its job still records, or its writer was killed" : "");
  if (report.unfinished > 0)
    text += printed("%llu operations began and never ended\n", static_cast<unsigned long long>(report.unfinished));
  for (const auto& [name, count] : report.findings)
    text += printed("agreement: %s: %llu\n", printable(name).c_str(), static_cast<unsigned long long>(count));
  text += printed("\n%-32s %10s %12s %12s %12s %12s %14s\n", "event", "count", "total ms", "mean us", "p99 us",
                  "max us", "bytes");
  for (const EventSummary& kind : report.kinds)
    text += printed("%-32.64s %10llu %12.3f %12.3f %12.3f %12.3f %14llu\n", printable(kind.name).c_str(),
                    static_cast<unsigned long long>(kind.count), kind.total_us / 1e3, kind.mean_us, kind.p99_us,
                    kind.max_us, static_cast<unsigned long long>(kind.bytes));
  if (report.arrivals.empty()) return text + "\nNo operation shows the arrivals of several ranks.\n";
  text += printed("\n%-10s %16s %24s   (of %llu operations)\n", "rank", "arrived last", "others waited ms",
                  static_cast<unsigned long long>(report.operations_compared));
  for (const ArrivalSummary& arrival : report.arrivals)
    text += printed("%-10lld %16llu %24.3f\n", static_cast<long long>(arrival.rank),
                    static_cast<unsigned long long>(arrival.last), arrival.waited_us / 1e3);
  return text;
}

std::string to_json(const TimelineReport& report) {
  using Json = nlohmann::ordered_json;
  const auto us = [](double value) { return std::round(value * 1e3) / 1e3; };
  Json events = Json::array(), arrivals = Json::array();
  for (const EventSummary& kind : report.kinds)
    events.push_back({{"name", kind.name},
                      {"count", kind.count},
                      {"total_us", us(kind.total_us)},
                      {"mean_us", us(kind.mean_us)},
                      {"p99_us", us(kind.p99_us)},
                      {"max_us", us(kind.max_us)},
                      {"bytes", kind.bytes}});
  for (const ArrivalSummary& arrival : report.arrivals)
    arrivals.push_back({{"rank", arrival.rank}, {"last", arrival.last}, {"others_waited_us", us(arrival.waited_us)}});
  const Json json{{"file", report.file},
                  {"ranks", report.ranks},
                  {"span_us", us(report.span_us)},
                  {"cut_off", report.cut_off},
                  {"unfinished", report.unfinished},
                  {"events", std::move(events)},
                  {"operations_compared", report.operations_compared},
                  {"arrivals", std::move(arrivals)},
                  {"findings", report.findings}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace hvd::timeline
