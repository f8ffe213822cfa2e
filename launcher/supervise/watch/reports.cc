#include "launcher/supervise/watch/reports.h"

#include <unistd.h>

#include <algorithm>

#include "base/environment.h"
#include "base/files/leftovers.h"
#include "base/files/trust.h"
#include "launcher/process/find_program.h"
#include "launcher/report/job_report.h"
#include "launcher/report/metrics/job_metrics.h"
#include "launcher/report/top_text.h"

namespace hvd::launcher {

Reports::Reports(const Job& job, const std::string& job_id, const std::string& folder, double started_wall_seconds,
                 Session& session, Printer& printer)
    : job_id_(job_id), started_wall_seconds_(started_wall_seconds), session_(session), printer_(printer) {
  live_.expect(job.map.ranks.size());
  if (const std::string file = job.settings.text("metrics"); !file.empty()) file_ = std::make_unique<MetricsFile>(file);
  open_otlp(job, folder);
}

/// Where OpenTelemetry's variables name a collector.
void Reports::open_otlp(const Job& job, const std::string& folder) {
  std::optional<OtlpTarget> target = otlp_target(environment_value);
  if (!target) return;
  const char* const path = environment_value("PATH");
  const std::string curl = find_program("curl", path ? path : "/usr/bin:/bin");
  if (curl.empty())
    return printer_.say("hvdrun: no metrics to " + target->url + ": curl is not installed on this host");
  if (!job.settings.flag("allow-writable")) look_at(curl, PathUse::file, {::geteuid() != 0, {}}).need_trust(curl);
  otlp_ = std::make_unique<OtlpSender>(curl, std::move(*target), folder + "/otlp");
}

void Reports::take_steps(int rank, const std::vector<wire::StepRecord>& steps) {
  live_.add(rank, steps, monotonic_seconds());
  send_to_readers();
}

void Reports::world_is(std::size_t ranks, std::uint64_t epoch) {
  live_.expect(ranks);
  worlds_ = epoch;
}

void Reports::turn() {
  live_.turn(monotonic_seconds());
  write_metrics(false);
}

void Reports::finish() {
  live_.finish();
  write_metrics(true);
}

std::string Reports::top(bool as_json) const {
  const double now = monotonic_seconds();
  return as_json ? diagnosis_json(live_.recent_diagnosis(now), live_.recent(now)) + "\n" : top_text(live_, now);
}

void Reports::send_to_readers() {
  const double now = monotonic_seconds();
  if (!readers_.take_due(now)) return;
  const std::string json = live_report_json(live_, now);
  if (json.empty()) return;
  for (const int rank : readers_.ranks()) session_.tell(rank, wire::Type::live_report, json);
}

void Reports::write_metrics(bool at_end) {
  const double now = monotonic_seconds();
  const bool to_file = file_ && (at_end || file_->is_due(now)), sends = otlp_ && (at_end || otlp_->is_due(now));
  if (otlp_ && at_end) otlp_->drop();
  if (otlp_) say_trouble(otlp_->trouble());
  if (!to_file && !sends) return;
  const auto ranks = static_cast<std::size_t>(std::ranges::count_if(session_.ranks(), [](const RankState& r) {
    return r.stage == RankStage::greeted || r.stage == RankStage::running;
  }));
  const std::vector<Metric> metrics = job_metrics(live_, ranks, worlds_, now);
  if (to_file) say_trouble(file_->write(metrics_text(metrics, job_id_), now));
  if (!sends) return;
  const auto ns = [](double wall_seconds) { return static_cast<std::int64_t>(wall_seconds * 1e9); };
  otlp_->send(otlp_text(metrics, otlp_->target(), job_id_, ns(started_wall_seconds_), ns(wall_seconds())), now);
  if (!at_end) return;
  otlp_->finish();
  say_trouble(otlp_->trouble());
}

void Reports::say_trouble(const std::string& trouble) {
  if (!trouble.empty()) printer_.say("hvdrun: " + trouble);
}

}  // namespace hvd::launcher
