#include "launcher/report/job_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/text.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

namespace {

std::string time_text(double seconds) {
  const auto whole = static_cast<long>(seconds);
  return seconds < 60 ? formatted("{:.1f} s", seconds)
                      : formatted("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string short_time_text(double seconds) {
  return seconds < 1 ? formatted("{:.3g} ms", seconds * 1000) : formatted("{:.3g} s", seconds);
}

struct StepSummary {
  std::int64_t count = 0;
  double seconds = 0;  ///< of one GPU; 0: not known
};

StepSummary steps_of(const std::vector<wire::DeathRecord>& deaths) {
  StepSummary s;
  int timed = 0;
  for (const wire::DeathRecord& d : deaths) {
    s.count = std::max(s.count, d.steps);
    s.seconds += d.step_seconds;
    timed += d.step_seconds > 0;
  }
  if (timed) s.seconds /= timed;
  return s;
}

/// "2 finished, 1 failed, 5 were stopped"; empty when all have finished.
std::string ends_text(const std::vector<wire::DeathRecord>& deaths) {
  long long finished = 0, stopped = 0;
  for (const wire::DeathRecord& d : deaths) {
    finished += d.cause == wire::Cause::finished;
    stopped += d.cause == wire::Cause::stopped;
  }
  const auto size = static_cast<long long>(deaths.size());
  if (finished == size) return {};
  std::vector<std::string> parts;
  if (finished) parts.push_back(formatted("{} finished", finished));
  if (const long long failed = size - finished - stopped) parts.push_back(formatted("{} failed", failed));
  if (stopped) parts.push_back(std::to_string(stopped) + (stopped == 1 ? " was stopped" : " were stopped"));
  return join(parts, ", ");
}

/// "GPUs 87 % busy on average, least 41 % (rank 2 on beta); memory peak 31 GiB".  Empty: no driver has reported.
std::string gpu_text(const std::vector<wire::DeathRecord>& deaths) {
  const wire::DeathRecord* least = nullptr;
  double sum = 0;
  std::int64_t peak = 0;
  int known = 0;
  for (const wire::DeathRecord& d : deaths) {
    peak = std::max(peak, d.gpu_peak_bytes);
    if (d.gpu_busy_percent < 0) continue;
    sum += d.gpu_busy_percent;
    ++known;
    if (!least || d.gpu_busy_percent < least->gpu_busy_percent) least = &d;
  }
  if (!known) return peak ? "GPU memory peak " + human_bytes(peak) : std::string();
  std::string line = formatted("GPUs {:.0f} % busy on average", sum / known);
  if (known > 1) line += formatted(", least {:.0f} % ({})", least->gpu_busy_percent, rank_text(*least));
  return line + (peak ? "; memory peak " + human_bytes(peak) : "");
}

}  // namespace

std::optional<SlowestRank> slowest_rank(const std::vector<wire::DeathRecord>& deaths) {
  constexpr double worth_a_word = 0.05;  // of a step
  const wire::DeathRecord* least = nullptr;
  double waited = 0;
  int timed = 0;
  for (const wire::DeathRecord& d : deaths) {
    if (d.step_seconds <= 0) continue;
    ++timed;
    waited += d.waited_seconds;
    if (!least || d.waited_seconds < least->waited_seconds) least = &d;
  }
  if (timed < 2) return {};
  const double others = (waited - least->waited_seconds) / (timed - 1) - least->waited_seconds;
  if (others < worth_a_word * least->step_seconds) return {};
  return SlowestRank{least, least->step_seconds - least->waited_seconds, others};
}

std::vector<std::string> report_lines(const JobUse& job) {
  const std::vector<wire::DeathRecord>& deaths = job.deaths;
  const double wall_seconds = job.wall_seconds;
  std::vector<std::string> lines{
      formatted("hvdrun: {}, {}", count_of(static_cast<long long>(deaths.size()), "rank"), time_text(wall_seconds))};
  if (deaths.empty()) return lines;
  double cpu = 0;
  for (const wire::DeathRecord& d : deaths) cpu += d.cpu_seconds;
  lines[0] += formatted("; {:.1f} cores in use on average", wall_seconds > 0 ? cpu / wall_seconds : 0);
  const bool told_more = job.diagnosis.steps > 0;
  if (const StepSummary steps = steps_of(deaths); steps.count > 1 && !told_more)
    lines.push_back("        " + count_of(steps.count, "step") +
                    (steps.seconds > 0 ? ", " + short_time_text(steps.seconds) + " each" : ""));
  if (const auto slow = slowest_rank(deaths); slow && !told_more)
    lines.push_back(formatted("        {} was the slowest: {} of work in each step, for which the others waited {}",
                              rank_text(*slow->rank), short_time_text(slow->work_seconds),
                              short_time_text(slow->others_waited_seconds)));
  const auto [least, most] = std::minmax_element(
      deaths.begin(), deaths.end(), [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  std::string memory =
      formatted("        memory peak {} (rank {} on {})", human_bytes(most->peak_bytes), most->rank, most->host);
  if (deaths.size() > 1) memory += formatted(", least {} (rank {})", human_bytes(least->peak_bytes), least->rank);
  lines.push_back(std::move(memory));
  if (const std::string gpus = gpu_text(deaths); !gpus.empty()) lines.push_back("        " + gpus);
  if (const std::string ends = ends_text(deaths); !ends.empty()) lines.push_back("        " + ends);
  const auto [first, last] = std::minmax_element(deaths.begin(), deaths.end(),
                                                 [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  const double apart = static_cast<double>(last->time_ns - first->time_ns) / 1e9;
  if (apart > 1)
    lines.push_back(formatted("        rank {} on {} was the last to end, {} after rank {}", last->rank, last->host,
                              time_text(apart), first->rank));
  for (std::string& line : diagnosis_lines(job.diagnosis)) lines.push_back(std::move(line));
  return lines;
}

namespace {

using Json = nlohmann::ordered_json;

Json known(double value, bool is) { return is ? Json(value) : Json(); }

/// @param most_ranks  of each finding
Json findings_of(const Diagnosis& d, std::size_t most_ranks = SIZE_MAX) {
  Json findings = Json::array();
  for (const Finding& f : d.findings) {
    const auto shown = static_cast<std::ptrdiff_t>(std::min(f.ranks.size(), most_ranks));
    findings.push_back({{"cause", cause_word(f.cause)},
                        {"ranks", std::vector<int>(f.ranks.begin(), f.ranks.begin() + shown)},
                        {"host", f.host.empty() ? Json() : Json(f.host)},
                        {"seconds_a_step", f.seconds_a_step},
                        {"share_of_steps", f.share_of_steps},
                        {"others_waited_seconds_in_all", f.seconds_in_all},
                        {"what", f.what},
                        {"advice", f.advice}});
  }
  return findings;
}

/// Means of steps.
Json parts_of(const RankSums& sums) {
  const auto n = static_cast<double>(std::max<std::int64_t>(sums.steps, 1));
  const auto part = [&](Delay delay) { return sums.parts[static_cast<std::size_t>(delay)] / n; };
  return {{"input_seconds", part(Delay::input)},
          {"saving_seconds", part(Delay::saving)},
          {"collecting_seconds", part(Delay::collecting)},
          {"compiling_seconds", part(Delay::compiling)},
          {"no_core_seconds", part(Delay::no_core)},
          {"asleep_seconds", part(Delay::asleep)},
          {"computing_seconds", part(Delay::computing)},
          {"waited_for_ranks_seconds", sums.waited / n},
          {"moved_seconds", sums.moved / n}};
}

Json parts_of_rank(const RankSums& sums) {
  Json parts = parts_of(sums);
  parts["late_seconds_in_all"] = sums.late;
  parts["late_steps"] = sums.late_steps;
  return parts;
}

Json course_of(const StepStatistics& steps) {
  Json course = Json::array();
  for (const StepPoint& p : steps.course()) {
    const auto n = static_cast<double>(std::max<std::int64_t>(p.steps, 1));
    course.push_back({{"step", p.number},
                      {"seconds", p.seconds / n},
                      {"waited", p.waited / n},
                      {"moved", p.moved / n},
                      {"input", p.input / n},
                      {"longest", p.longest}});
  }
  return course;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

}  // namespace

std::string diagnosis_json(const Diagnosis& d, const StepStatistics& steps) {
  Json ranks = Json::array();
  for (const auto& [rank, sums] : steps.ranks()) ranks.push_back({{"rank", rank}, {"step_parts", parts_of_rank(sums)}});
  return text_of({{"steps", d.steps},
                  {"step_seconds", known(d.step_seconds, d.steps > 0)},
                  {"waiting_seconds", known(d.waiting_seconds, d.steps > 0)},
                  {"communication_seconds", known(d.communication_seconds, d.steps > 0)},
                  {"findings", findings_of(d)},
                  {"ranks", std::move(ranks)}});
}

std::string live_report_json(const LiveReport& report, double now_seconds) {
  const StepStatistics recent = report.recent(now_seconds);
  if (recent.steps() == 0) return {};
  const Diagnosis d = report.recent_diagnosis(now_seconds);
  constexpr std::size_t most_ranks =
      256;  // of a finding; LiveReportText has a bounded size (wire/shared/recorder_memory.h)
  RankSums all;
  for (const auto& [rank, sums] : recent.ranks()) all += sums;
  return text_of({{"steps", report.whole().steps()},
                  {"step_seconds", d.step_seconds},
                  {"waiting_seconds", d.waiting_seconds},
                  {"communication_seconds", d.communication_seconds},
                  {"step_parts", parts_of(all)},
                  {"findings", findings_of(d, most_ranks)}});
}

std::string report_json(const JobUse& job, int exit_code, int first_cause) {
  const std::vector<wire::DeathRecord>& deaths = job.deaths;
  double cpu = 0;
  Json ranks = Json::array();
  const wire::DeathRecord *first = nullptr, *last = nullptr;
  for (const wire::DeathRecord& d : deaths) {
    cpu += d.cpu_seconds;
    if (!first || d.time_ns < first->time_ns) first = &d;
    if (!last || d.time_ns > last->time_ns) last = &d;
  }
  for (const wire::DeathRecord& d : deaths) {
    const auto parts = job.steps.ranks().find(d.rank);
    ranks.push_back({{"rank", d.rank},
                     {"host", d.host},
                     {"ended", story(d)},
                     {"exit_code", wire::exit_code(d)},
                     {"after_the_first_seconds", static_cast<double>(d.time_ns - first->time_ns) / 1e9},
                     {"steps", d.steps},
                     {"step_seconds", known(d.step_seconds, d.step_seconds > 0)},
                     {"waited_seconds", known(d.waited_seconds, d.step_seconds > 0)},
                     {"step_parts", parts == job.steps.ranks().end() ? Json() : parts_of_rank(parts->second)},
                     {"cpu_seconds", d.cpu_seconds},
                     {"peak_bytes", d.peak_bytes},
                     {"gpu_busy_percent", known(d.gpu_busy_percent, d.gpu_busy_percent >= 0)},
                     {"gpu_peak_bytes", d.gpu_peak_bytes ? Json(d.gpu_peak_bytes) : Json()}});
  }
  const StepSummary steps = steps_of(deaths);
  const auto slow = slowest_rank(deaths);
  const Diagnosis& d = job.diagnosis;
  return text_of({{"payload", job.title},
                  {"exit_code", exit_code},
                  {"wall_seconds", job.wall_seconds},
                  {"cores_in_use", job.wall_seconds > 0 ? cpu / job.wall_seconds : 0},
                  {"steps", d.steps > 0 ? d.steps : steps.count},
                  {"step_seconds", d.steps > 0 ? Json(d.step_seconds) : known(steps.seconds, steps.seconds > 0)},
                  {"waiting_seconds", known(d.waiting_seconds, d.steps > 0)},
                  {"communication_seconds", known(d.communication_seconds, d.steps > 0)},
                  {"findings", findings_of(d)},
                  {"slowest_rank", slow ? Json(slow->rank->rank) : Json()},
                  {"others_waited_seconds", slow ? Json(slow->others_waited_seconds) : Json()},
                  {"first_cause", first_cause < 0 ? Json() : Json(first_cause)},
                  {"last_to_end", last ? Json(last->rank) : Json()},
                  {"course", course_of(job.steps)},
                  {"ranks", std::move(ranks)}});
}

}  // namespace hvd::launcher
