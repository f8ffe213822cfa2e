#include "launcher/verdict/verdict_document.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using Json = nlohmann::ordered_json;
using wire::DeathRecord;

constexpr std::size_t most_evidence_lines = 60, most_line_bytes = 2000, most_incidents = 1000, most_calls = 16;

/// "2026-11-26T15:25:30.120Z".
std::string time_text(double unix_seconds) {
  const auto whole = static_cast<std::time_t>(std::floor(unix_seconds));
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  return formatted("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                   utc.tm_hour, utc.tm_min, utc.tm_sec,
                   static_cast<int>((unix_seconds - static_cast<double>(whole)) * 1000));
}

double wall_of(const DeathRecord& d, const JudgedJob& job) {
  return job.ended - static_cast<double>(job.ended_ns - d.time_ns) / 1e9;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json frame_json(const std::optional<wire::SourceFrame>& frame) {
  if (!frame) return {};
  return {{"file", frame->file}, {"line", frame->line}, {"function", text_or_null(frame->function)}};
}

std::string without_name(const std::string& line) {
  return std::string(trim(line.starts_with("hvdrun: ") ? line.substr(8) : line));
}

Json advice_json(const Advice& advice) {
  return {{"action", advice_words[static_cast<std::size_t>(advice.kind)]}, {"reason", advice.reason}};
}

/// The part that incidents and the whole document share.
void put_cause(Json& json, const JobCause& cause) {
  json["cause"] = cause_words[static_cast<std::size_t>(cause.kind)];
  json["rank"] = cause.rank < 0 ? Json() : Json(cause.rank);
  json["host"] = text_or_null(cause.host);
  json["frame"] = frame_json(cause.frame);
  json["operation"] = text_or_null(cause.operation);
  json["advice"] = advice_json(cause.advice);
}

class EvidenceLines {
 public:
  void add(const std::string& line) {
    if (!trim(line).empty()) lines_.push_back(shortened(line, most_line_bytes));
  }
  void add_all(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) add(line);
  }
  /// Of too many lines, keeps the first ones, which are headings, and the last ones, which name the error.
  std::vector<std::string> all() const {
    if (lines_.size() <= most_evidence_lines) return lines_;
    const auto half = static_cast<std::ptrdiff_t>(most_evidence_lines / 2);
    std::vector<std::string> some(lines_.begin(), lines_.begin() + half);
    some.emplace_back("…");
    some.insert(some.end(), lines_.end() - half + 1, lines_.end());
    return some;
  }

 private:
  std::vector<std::string> lines_;
};

std::vector<std::string> evidence_of(const DeathRecord& d) {
  EvidenceLines evidence;
  evidence.add(d.text);
  evidence.add(d.hint);
  evidence.add_all(d.traceback.empty() ? d.tail : split(d.traceback, '\n'));
  return evidence.all();
}

std::vector<std::string> evidence_of(const Verdict& verdict) {
  EvidenceLines evidence;
  for (std::size_t i = 1; i < verdict.lines.size(); ++i) evidence.add(without_name(verdict.lines[i]));
  if (verdict.first_cause) {
    const DeathRecord& d = *verdict.first_cause;
    evidence.add_all(d.traceback.empty() ? d.tail : split(d.traceback, '\n'));
  }
  return evidence.all();
}

/// The ends of all ranks but @p culprit, grouped.
Json others_json(const std::vector<DeathRecord>& deaths, int culprit, int size) {
  std::map<std::string, std::vector<int>> by_end;
  int ended = 0;
  for (const DeathRecord& d : deaths) {
    ++ended;
    const std::string words = end_of(d);
    if (d.rank != culprit) by_end[words.substr(0, words.find(' '))].push_back(d.rank);
  }
  Json others = Json::array();
  for (auto& [end, ranks] : by_end) {
    std::sort(ranks.begin(), ranks.end());
    others.push_back({{"end", end}, {"count", ranks.size()}, {"ranks", ranges(ranks)}});
  }
  if (ended < size) others.push_back({{"end", "not_started"}, {"count", size - ended}, {"ranks", ""}});
  return others;
}

Json incident_json(const DeathRecord& d, const JudgedJob& job) {
  Json json{{"time", time_text(wall_of(d, job))}};
  const JobCause cause = cause_of_death(d);
  put_cause(json, cause);
  json["headline"] = shortened(rank_text(d) + " " + story(d) + exception_text(d), most_headline_bytes);
  json["exit_code"] = wire::exit_code(d);
  json["evidence"] = evidence_of(d);
  return json;
}

Json incidents_json(const JudgedJob& job, const Verdict& verdict, const std::vector<DeathRecord>& deaths) {
  std::vector<const DeathRecord*> failed;
  for (const DeathRecord& d : deaths)
    if (d.cause != wire::Cause::finished && d.cause != wire::Cause::stopped) failed.push_back(&d);
  std::sort(failed.begin(), failed.end(), [](const auto* a, const auto* b) { return a->time_ns < b->time_ns; });
  Json incidents = Json::array();
  for (const DeathRecord* d : failed)
    if (incidents.size() < most_incidents &&
        (job.is_elastic || (verdict.first_cause && verdict.first_cause->rank == d->rank)))
      incidents.push_back(incident_json(*d, job));
  return incidents;
}

Json calls_json(const std::vector<DisagreeingCall>& calls) {
  Json json = Json::array();
  for (std::size_t i = 0; i < std::min(calls.size(), most_calls); ++i)
    json.push_back({{"ranks", ranges(calls[i].ranks)},
                    {"function", text_or_null(calls[i].function)},
                    {"frame", frame_json(calls[i].frame)}});
  return json;
}

Json findings_json(const JudgedJob& job) {
  Json findings = Json::array();
  for (const auto& [time, found] : job.findings)
    findings.push_back({{"time", time_text(time)},
                        {"kind", wire::finding_words[static_cast<std::size_t>(found.kind)]},
                        {"tensor", found.tensor},
                        {"step", found.step < 0 ? Json() : Json(found.step)},
                        {"ranks", found.ranks},
                        {"text", found.text}});
  return findings;
}

/// The fields before the lists.
Json begun(const JudgedJob& job, Outcome outcome, int exit_code, double time, const std::string& headline,
           const JobCause& cause) {
  Json json{{"schema", verdict_schema},
            {"version", verdict_version},
            {"hvdrun", HVD_VERSION},
            {"job", text_or_null(job.id)},
            {"payload", job.payload},
            {"started", time_text(job.started)},
            {"ended", time_text(job.ended)},
            {"time", time_text(time)},
            {"outcome", outcome_words[static_cast<std::size_t>(outcome)]},
            {"exit_code", exit_code},
            {"headline", headline}};
  put_cause(json, cause);
  return json;
}

std::string text_of(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string verdict_json(const JudgedJob& job, const Verdict& verdict, const EndReason& ended,
                         const std::vector<DeathRecord>& deaths, int size) {
  const JobCause cause = cause_of(verdict, ended);
  Json json = begun(job, verdict.outcome, verdict.exit_code,
                    verdict.first_cause ? wall_of(*verdict.first_cause, job) : job.ended,
                    verdict.lines.empty() ? "the job has finished" : without_name(verdict.lines[0]), cause);
  json["evidence"] = evidence_of(verdict);
  json["others"] = others_json(deaths, cause.rank, size);
  json["incidents"] = incidents_json(job, verdict, deaths);
  json["calls"] = calls_json(verdict.calls);
  json["findings"] = findings_json(job);
  return text_of(json);
}

std::string failed_start_json(const JudgedJob& job, const Error& error) {
  Json json = begun(job, Outcome::not_started, static_cast<int>(error.code), job.ended,
                    shortened(error.what(), most_headline_bytes), cause_of_failed_start(error.code));
  json["evidence"] = error.hint.empty() ? Json::array() : Json(split(error.hint, '\n'));
  json["others"] = Json::array();
  json["incidents"] = Json::array();
  json["calls"] = Json::array();
  json["findings"] = Json::array();
  return text_of(json);
}

std::string short_verdict(const Verdict& verdict, const Advice& advice, std::size_t most_bytes) {
  if (verdict.exit_code == 0 || verdict.lines.empty()) return {};
  const std::string last =
      formatted("        advice: {}: {}\n", advice_words[static_cast<std::size_t>(advice.kind)], advice.reason);
  std::string text = printable(verdict.lines[0]) + "\n" + last;
  if (text.size() > most_bytes) text.resize(most_bytes);
  for (std::size_t i = 1; i < verdict.lines.size(); ++i) {
    const std::string line = printable(verdict.lines[i]) + "\n";
    if (text.size() + line.size() > most_bytes) break;
    text += line;
  }
  return text;
}

}  // namespace hvd::launcher
