#include "launcher/report/last_reports.h"

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/files/sha256.h"
#include "base/files/trust.h"
#include "base/format.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_bytes = 64 << 10;
constexpr std::int64_t enough_steps = 20;
constexpr double worth_a_line = 0.1;

}  // namespace

std::string LastReports::path_of(const std::string& job) const {
  constexpr std::size_t hex_digits = 2;  // 256 files
  return folder_ + "/" + sha256_hex(job).substr(0, hex_digits) + ".json";
}

std::optional<LastReport> LastReports::find(const std::string& job) const {
  if (folder_.empty()) return {};
  try {
    const auto json = nlohmann::json::parse(read_trusted(path_of(job), most_bytes, false));
    if (json.at("job") != job) return {};
    return LastReport{json.at("when_seconds"), json.at("steps"), json.at("step_seconds")};
  } catch (const std::exception&) { return {}; }
}

void LastReports::keep(const std::string& job, const LastReport& report) const {
  if (folder_.empty()) return;
  try {
    make_own_folder(folder_);
    const nlohmann::json json{{"job", job},
                              {"when_seconds", report.when_seconds},
                              {"steps", report.steps},
                              {"step_seconds", report.step_seconds}};
    replace_own_file(path_of(job), json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 0600);
  } catch (const std::exception&) {
  }  // the disk is full, or the home read only: the job's end does not depend on the file
}

std::string compared_line(const Diagnosis& now, const LastReport& then) {
  if (now.steps < enough_steps || then.steps < enough_steps || !(then.step_seconds > 0) || !(now.step_seconds > 0))
    return "";
  const double ratio = now.step_seconds / then.step_seconds;
  if (std::abs(ratio - 1) < worth_a_line) return "";
  const auto when = static_cast<std::time_t>(then.when_seconds);
  std::tm parts{};
  char date[32] = "";
  if (::localtime_r(&when, &parts)) std::strftime(date, sizeof date, "%Y-%m-%d %H:%M", &parts);
  return formatted("hvdrun: {:.0f} % {} than the last time ({} a step, {})", 100 * std::abs(ratio - 1),
                   ratio > 1 ? "slower" : "faster", duration_text(then.step_seconds), std::string(date));
}

}  // namespace hvd::launcher
