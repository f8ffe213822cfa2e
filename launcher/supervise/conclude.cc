/// The last part of a job's life: what ended it is told, and nothing stays behind.
#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "base/files/leftovers.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/remote/start_failure.h"
#include "launcher/supervise/end/final_words.h"
#include "launcher/supervise/supervisor.h"

namespace hvd::launcher {

using namespace std::chrono_literals;

void Supervisor::fail_start(bool timed_out) {
  StartFailureFacts facts;
  facts.absent_ranks = session_->in_stage(RankStage::absent);
  for (const int rank : facts.absent_ranks)
    if (const std::string& host = job_.map.host_of(rank).name;
        facts.absent_hosts.empty() || facts.absent_hosts.back() != host)
      facts.absent_hosts.push_back(host);
  on_starter_output();
  facts.ssh_logs = read_ssh_logs(folder_.path());
  facts.ssh_logs.merge(starter_->host_logs());
  facts.starter = starter_->name();
  facts.starter_output = starter_->output();
  facts.timed_out = timed_out;
  facts.waited_seconds = job_.settings.number("start-timeout");
  std::optional<int> status = starter_->status();
  for (const auto& [host, code] : starter_->ended_hosts())
    if (!status && code != 0) status = code;
  if (status)
    facts.starter_end = WIFSIGNALED(*status) ? "was killed by " + signal_text(WTERMSIG(*status))
                                             : "ended with exit code " + std::to_string(WEXITSTATUS(*status));
  throw start_failure(facts);
}

/// An error ended the loop: nothing may stay behind.
void Supervisor::abandon() noexcept {
  try {
    if (session_) {
      session_->stop_all("the job failed to start", 0, SIGTERM);
      session_->release_all();
    }
    if (starter_) starter_->signal(SIGTERM);
    for (int i = 0; starter_ && !starter_->status() && i < 10; ++i) {
      if (session_ && watch_)
        session_->pump({});  // what the ranks tell goes to parts of which start() makes watch_ last
      ::poll(nullptr, 0, 30);
    }
    if (starter_) starter_->signal(SIGKILL);
    kill_descendants(std::chrono::seconds(2));
    remove_shared_memory_leftovers(started_wall_seconds_ - 1);
    printer_.flush_all(500);
  } catch (...) {}
}

/// mpirun ends all ranks when the way to one of its daemons breaks, and only its words tell why.
void Supervisor::look_for_lost_host() {
  const std::string& words = starter_->output();
  if (job_.map.all_local() || job_.elastic || words.find("daemon") == std::string::npos) return;
  std::vector<std::string> named, remote;
  for (const MappedHost& h : job_.map.hosts) {
    if (h.local) continue;
    remote.push_back(h.name);
    if (words.find(h.name) != std::string::npos) named.push_back(h.name);
  }
  if (remote.size() > 4) remote = {"a remote host"};
  ended_.starter_fault = "lost its connection to " + join(named.empty() ? remote : named, " or ");
  ended_.starter_code = static_cast<int>(Code::peer_lost);
}

/// Its programs with their arguments.
std::string Supervisor::what_runs() const {
  const auto words = [](const wire::Payload& p) {
    return join({p.name, join(p.args, " ")}, p.args.empty() ? "" : " ");
  };
  if (job_.programs.empty()) return words(job_.payload.wire);
  std::vector<std::string> all;
  for (const Program& program : job_.programs) all.push_back(words(program.payload));
  return join(all, " : ");
}

/// The same programs with the same arguments in the same folder, on as many ranks and hosts.
std::string Supervisor::same_job() const {
  std::error_code error;
  std::string text = std::filesystem::current_path(error);
  return text + "\n" + what_runs() + formatted("\n{} ranks, {} hosts", job_.map.ranks.size(), job_.map.hosts.size());
}

int Supervisor::conclude() {
  JobOutcome outcome;
  for (const RankState& r : session_->ranks())
    if (r.death && !(elastic_ && elastic_->is_excused(r.death->rank))) outcome.use.deaths.push_back(*r.death);
  // Guards end what is below them before they tell a rank's end.  An elastic job's guards go at once, so most hosts
  // have none to look over them; after a good run nobody needs to look, and on a busy host the answer may come too
  // late.
  std::set<std::string> emptied;
  for (const MappedHost& h : job_.map.hosts) emptied.insert(h.name);
  for (std::size_t r = 0; r < session_->ranks().size(); ++r)
    if (const auto& death = session_->ranks()[r].death;
        !death || death->cause == wire::Cause::vanished || (!elastic_ && death->cause != wire::Cause::finished))
      emptied.erase(job_.map.host_of(static_cast<int>(r)).name);
  cleanup_.finish(job_.map, outcome.use.deaths, started_wall_seconds_, emptied);
  for (const std::string& line : cleanup_lines(cleanup_.hosts())) detail(line.substr(8));
  if (const std::string warning = timeline_->close(10s); !warning.empty()) say("hvdrun: " + warning);
  if (ended_.starter_fault.empty() && !end_.starter_was_signalled()) look_for_lost_host();
  if (starter_) ended_.mpirun_said = first_words(starter_->output());
  if (starter_) ended_.starter = starter_->name();
  outcome.verdict =
      judge(outcome.use.deaths,
            elastic_ ? static_cast<int>(outcome.use.deaths.size()) : static_cast<int>(job_.map.ranks.size()), ended_);
  outcome.interrupted = ended_.signal == SIGINT;
  outcome.use.wall_seconds = std::chrono::duration<double>(Clock::now() - started_at_).count();
  outcome.hosts = cleanup_.hosts();
  report_.finish();
  if (metrics_ || otlp_) write_metrics(true);
  outcome.use.title = what_runs();
  outcome.same_job = same_job();
  outcome.use.steps = report_.whole();
  outcome.use.diagnosis = report_.diagnosis();
  tell_outcome(outcome, job_.settings, printer_, results_.get());
  if (outcome.verdict.first_cause && !verbose_) tell_mpi_problem();
  if (outcome.verdict.exit_code != 0)
    if (const std::string path = operations_->keep(operations_->last()); !path.empty())
      detail("the last operations of the ranks that failed: hvd-timeline desync " + path);
  if (results_) results_->finish(outcome.verdict.first_cause, outcome.verdict.exit_code);
  printer_.flush_all(ended_.signal ? 500 : 60000);
  return outcome.verdict.exit_code;
}

}  // namespace hvd::launcher
