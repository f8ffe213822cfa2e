#include "launcher/supervise/end/conclude.h"

#include <csignal>
#include <filesystem>
#include <set>

#include "base/files/leftovers.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/control/clock.h"
#include "launcher/process/signal_queue.h"
#include "launcher/supervise/end/final_words.h"
#include "launcher/verdict/verdict_output.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

/// A text that is equal for jobs with the same programs, arguments, folder, number of ranks and number of hosts.
std::string same_job(const Job& job) {
  std::error_code error;
  std::string text = std::filesystem::current_path(error);
  return text + "\n" + what_runs(job) + formatted("\n{} ranks, {} hosts", job.map.ranks.size(), job.map.hosts.size());
}

/// Hosts without any process of the job.  A guard ends its descendants before it reports the end of its rank.  The host
/// of a failed rank is left out, because it may still have processes.  In an elastic job it counts, because the guard
/// of a dead rank exits at once.
std::set<std::string> emptied_hosts(const EndedJob& ended) {
  std::set<std::string> emptied;
  for (const MappedHost& h : ended.job.map.hosts) emptied.insert(h.name);
  const std::vector<RankState>& ranks = ended.session.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (const auto& death = ranks[r].death;
        !death || death->cause == wire::Cause::vanished || (!ended.elastic && death->cause != wire::Cause::finished))
      emptied.erase(ended.job.map.host_of(static_cast<int>(r)).name);
  return emptied;
}

/// The verdict as data, for the user's file and hvd.run(), and its headline for Kubernetes.  Returns the data.
std::string tell_programs(const EndedJob& ended, const JobOutcome& outcome) {
  std::vector<wire::DeathRecord> all;  // also the excused ones: an elastic job's incidents
  for (const RankState& r : ended.session.ranks())
    if (r.death) all.push_back(*r.death);
  const EndReason& reason = ended.ending.reason();
  const JudgedJob job{ended.job_id,   outcome.use.title, ended.started_wall_seconds,
                      wall_seconds(), monotonic_ns(),    ended.elastic != nullptr,
                      ended.findings};
  const std::size_t size = ended.elastic ? all.size() : ended.job.map.ranks.size();
  const std::string json = verdict_json(job, outcome.verdict, reason, all, static_cast<int>(size));
  if (const std::string trouble = write_verdict(ended.job.settings.text("verdict-filename"), json); !trouble.empty())
    ended.printer.say(trouble);
  write_termination_log(
      short_verdict(outcome.verdict, cause_of(outcome.verdict, reason).advice, most_termination_bytes));
  return json;
}

}  // namespace

std::string what_runs(const Job& job) {
  const auto words = [](const wire::Payload& p) {
    return join({p.name, join(p.args, " ")}, p.args.empty() ? "" : " ");
  };
  if (job.programs.empty()) return words(job.payload.wire);
  std::vector<std::string> all;
  for (const Program& program : job.programs) all.push_back(words(program.payload));
  return join(all, " : ");
}

/// A signal that ends jobs, if one waits to be read; else 0.
static int waiting_signal() {
  sigset_t waiting;
  ::sigpending(&waiting);
  for (const int number : ending_signals)
    if (::sigismember(&waiting, number) == 1) return number;
  return 0;
}

/// Writes the remaining output, however long its reader pauses; a signal ends that.  Returns hvdrun's exit code.
static int write_remaining_output(Printer& printer, int signal, int exit_code) {
  int asked = 0;
  printer.flush_all(signal ? 500 : 0);
  while (!signal && !asked && printer.pending_bytes()) {
    asked = waiting_signal();
    printer.flush_all(asked ? 500 : 100);
  }
  if (const std::size_t lost = printer.pending_bytes()) {
    printer.say(formatted("hvdrun: {} bytes of output are lost, since nothing reads them", lost));
    printer.stderr_outlet().flush_ready();
  }
  return asked && exit_code == 0 ? 128 + asked : exit_code;
}

int conclude(const EndedJob& ended) {
  JobOutcome outcome;
  for (const RankState& r : ended.session.ranks())
    if (r.death && !(ended.elastic && ended.elastic->is_excused(r.death->rank))) outcome.use.deaths.push_back(*r.death);
  ended.cleanup.finish(ended.job.map, outcome.use.deaths, ended.started_wall_seconds, emptied_hosts(ended));
  if (const std::string warning = ended.timeline.close(10s); !warning.empty()) ended.printer.say("hvdrun: " + warning);

  const EndReason& reason = ended.ending.conclude();
  outcome.verdict =
      judge(outcome.use.deaths,
            static_cast<int>(ended.elastic ? outcome.use.deaths.size() : ended.job.map.ranks.size()), reason);
  outcome.interrupted = reason.signal == SIGINT;
  outcome.use.wall_seconds = ended.wall_seconds;
  outcome.hosts = ended.cleanup.hosts();
  ended.reports.finish();
  outcome.use.title = what_runs(ended.job);
  outcome.same_job = same_job(ended.job);
  outcome.use.steps = ended.reports.steps().whole();
  outcome.use.diagnosis = ended.reports.steps().diagnosis();
  tell_outcome(outcome, ended.job.settings, ended.printer, ended.streams.results());
  if (outcome.verdict.first_cause && !ended.printer.is_verbose())
    for (const std::string& line : ended.mpi_problem) ended.printer.say(line);
  if (outcome.verdict.exit_code != 0)
    if (const std::string path = ended.operations.keep(ended.operations.last()); !path.empty())
      ended.printer.detail("the last operations of the ranks that failed: hvd-timeline desync " + path);
  ended.streams.finish_results(outcome.verdict.first_cause, tell_programs(ended, outcome), outcome.verdict.exit_code);
  return write_remaining_output(ended.printer, reason.signal, outcome.verdict.exit_code);
}

}  // namespace hvd::launcher
