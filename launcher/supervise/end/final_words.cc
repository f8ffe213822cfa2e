#include "launcher/supervise/end/final_words.h"

#include <ctime>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/state_folder.h"
#include "base/text.h"
#include "launcher/report/last_reports.h"
#include "launcher/report/report_page.h"

namespace hvd::launcher {

namespace {

bool wants_report(const Settings& settings, Printer& printer) {
  return settings.has("report") ? settings.flag("report") : printer.stderr_outlet().is_terminal();
}

/// The last lines of the rank that failed, if other ranks' lines have pushed them out of sight.
void tell_last_lines(const wire::DeathRecord& d, Printer& printer) {
  constexpr long long out_of_sight = 10;
  if (d.tail.empty() || printer.lines_since(d.rank) < out_of_sight) return;
  printer.say("        its last lines were:");
  printer.rank_text(d.rank, join(d.tail, "\n"), false);
}

/// --json: the report is the last line.  --report-filename: the report is a file, or a page if the name ends in .html.
/// A file that cannot be written does not change the job's exit code.
void report_to_programs(const JobOutcome& outcome, const Settings& settings, Printer& printer) {
  const std::string name = settings.text("report-filename");
  const bool as_line = wants_report(settings, printer) && settings.flag("json");
  if (!as_line && name.empty()) return;
  const Verdict& verdict = outcome.verdict;
  const std::string json =
      report_json(outcome.use, verdict.exit_code, verdict.first_cause ? verdict.first_cause->rank : -1);
  if (as_line) printer.say(json);
  if (name.empty()) return;
  try {
    replace_own_file(name, name.ends_with(".html") ? report_page(json) : json + "\n", 0600);
  } catch (const Error& e) { printer.say(std::string("hvdrun: the report is not written: ") + e.what()); }
}

void tell_report(const JobOutcome& outcome, Printer& printer) {
  for (const std::string& line : report_lines(outcome.use)) printer.say(line);
  const Diagnosis& d = outcome.use.diagnosis;
  if (d.steps == 0) return;
  const LastReports last(state_folder("last-reports"));
  if (const auto then = last.find(outcome.same_job))
    if (const std::string line = compared_line(d, *then); !line.empty()) printer.say(line);
  if (outcome.verdict.exit_code == 0)
    last.keep(outcome.same_job, {static_cast<double>(std::time(nullptr)), d.steps, d.step_seconds});
}

}  // namespace

void tell_outcome(const JobOutcome& outcome, const Settings& settings, Printer& printer, const Results* results) {
  const auto& first = outcome.verdict.first_cause;
  for (const wire::DeathRecord& d :
       outcome.use.deaths)  // the ranks' files get every traceback, also those that are not shown
    if (!d.traceback.empty() && !d.traceback_shown && !(first && first->rank == d.rank))
      printer.rank_file(d.rank, d.traceback);
  if (outcome.interrupted && printer.stderr_outlet().is_terminal())
    printer.say("");                                              // a line of its own for the terminal's ^C
  if (wants_report(settings, printer) && !settings.flag("json"))  // first, so that the verdict stays on the screen
    tell_report(outcome, printer);
  for (const std::string& line : outcome.verdict.lines) printer.say(line);
  for (const std::string& line : trouble_lines(outcome.hosts)) printer.say(line);
  if (first && first->traceback.empty()) tell_last_lines(*first, printer);
  // A guard shows the traceback at once if the rank then lives on for long.
  if (first && !first->traceback_shown && !first->traceback.empty()) {
    if (results && results->for_program())  // the program's exception shows the traceback
      printer.rank_file(first->rank, first->traceback);
    else
      printer.rank_text(first->rank, first->traceback, true);
  }
  for (const std::string& line : cleanup_lines(outcome.hosts)) printer.detail(line.substr(8));
  report_to_programs(outcome, settings, printer);
}

}  // namespace hvd::launcher
