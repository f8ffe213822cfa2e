/// @file event_table.cc — the parts that take each event.
#include <sys/wait.h>

#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/network/interface_address.h"
#include "base/process/stopped_children.h"
#include "base/text.h"
#include "launcher/supervise/supervisor.h"

namespace hvd::launcher {

namespace {

template <class... Functions>
struct Overloads : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloads(Functions...) -> Overloads<Functions...>;  // clang needs the guide

constexpr const char* no_spawn =
    "it called MPI_Comm_spawn, which hvdrun does not serve: start all ranks with -np, or use --launcher mpirun";

}  // namespace

void Supervisor::on_event(const JobEvent& event) {
  Parts& p = *parts_;
  std::visit(Overloads{
                 // ranks
                 [&](const GuardCame& e) {
                   p.arrivals.greet(e.hello);
                   p.reports.rank_came(e.hello.rank, job_.map.host_of(e.hello.rank).name);
                   timeline_.rank_came(e.hello.rank, e.hello.local);
                 },
                 [&](const RankStarted& e) {
                   p.reports.rank_started(e.rank, static_cast<int>(e.body.cpus.size()));
                   p.arrivals.tell_start(e.rank, e.body);
                   streams_.rank_started(e.rank);
                   timeline_.rank_runs(*session_, e.rank);
                 },
                 [&](const RankEnded& e) { on_death(e.death); },
                 [&](const RankPaused& e) { p.watch.paused(e.rank, e.body); },
                 [&](const HostSwept& e) { cleanup_.add(job_.map.host_of(e.rank).name, e.body); },
                 // streams
                 [&](const RankWrote& e) { streams_.rank_wrote(e.rank, e.body.stream, e.body.bytes); },
                 [&](const InputTaken& e) { streams_.input_taken(e.rank, e.body); },
                 [&](const ResultCame& e) {
                   if (p.ending.goes_on()) streams_.result_came(e.rank, e.body);
                 },
                 // what ranks do
                 [&](const RankTraced& e) { timeline_.records(e.rank, e.body); },
                 [&](const ClockSampled& e) { timeline_.clock_sample(e.rank, e.sent_ns, e.received_ns, e.guard_ns); },
                 [&](const StepsCame& e) { p.reports.take_steps(e.rank, e.body); },
                 [&](const ReportWanted& e) { p.reports.add_reader(e.rank); },
                 [&](const OperationsCame& e) { p.operations.take(e.rank, e.body); },
                 [&](const OperationsStalled& e) { p.watch.stall(e.rank, e.body); },
                 [&](const FindingCame& e) { p.findings.take(e.rank, e.body); },
                 [&](const CollectiveWaited& e) { p.watch.collective_wait(e.rank, e.body); },
                 [&](const StatusCame& e) { p.watch.standing(e.rank, e.body); },
                 [&](const StackCame& e) { p.server.stack(e.rank, e.body); },
                 [&](const ConsoleSaid& e) { p.server.console(e.rank, e.body); },
                 // host daemons
                 [&](const RankAborted& e) { session_->abort(e.rank, e.status, "it called MPI_Abort"); },
                 [&](const RankSpawned& e) { session_->abort(e.rank, static_cast<int>(Code::usage), no_spawn); },
                 [&](const HostMoved& e) { on_move(e); },
                 [&](const GuardEnded& e) { on_lost_guard(e); },
                 [&](const GuardContinued& e) { on_continued_guard(e); },
                 [&](const PmixMissing& e) { on_missing_pmix(e); },
                 [&](const WorkerWaits& e) {
                   if (p.elastic) p.elastic->waits(e.rank, job_seconds());
                 },
                 [&](const NextWorldAsked& e) {
                   session_->daemons().tell_next_world(e.question, p.elastic->expects(e.question.rank, job_seconds()));
                 },
                 [&](const WorldMet& e) { on_world(e); },
                 // hvdrun's own parts
                 [&](const SessionNote& e) { printer_.detail(e.line); },
                 [&](const HangTold& e) {
                   if (p.ending.goes_on()) printer_.say(e.line);
                 },
                 [&](const StacksWanted& e) { p.server.ask(e.ranks, e.done); },
                 [&](const DifferenceWanted&) { tell_difference(); },
                 [&](const OperationsAsked& e) { p.operations.ask(e.done); },
                 [&](const LimitPaused& e) { session_->pause_limits(e.seconds); },
                 [&](const HangTooLong& e) { p.ending.stop_for_hang(e.why); },
                 [&](const ElasticOver& e) { p.ending.stop_elastic(e.why); },
                 [&](const KillWanted&) { p.ending.stop_for_signal(SIGTERM); },
             },
             event);
}

void Supervisor::on_death(const wire::DeathRecord& d) {
  const bool is_well = d.cause == wire::Cause::finished;
  printer_.rank_ended(d.rank);
  parts_->reports.rank_ended(d.rank);
  parts_->server.rank_ended(d.rank);
  parts_->watch.rank_ended(d.rank);
  streams_.rank_ended(d.rank);
  timeline_.rank_ended(d.rank, is_well ? "" : story(d));
  printer_.detail(formatted("rank {} has ended{}", d.rank, is_well ? "" : " badly: " + story(d)));
  if (!parts_->ending.goes_on()) return;
  if (parts_->elastic && parts_->elastic->survives(d, job_seconds())) return;
  if (!is_well) parts_->ending.stop(formatted("rank {} on {} has failed", d.rank, d.host));
}

/// For a guard that never connected.  The session sees the end of any other guard, because its connection ends.
void Supervisor::on_lost_guard(const GuardEnded& end) {
  if (session_->ranks()[static_cast<std::size_t>(end.rank)].stage != RankStage::absent) return;
  if (!end.why_unstarted.empty())
    return session_->vanish(end.rank, "its guard could not be started: " + end.why_unstarted);
  const int number = WIFSIGNALED(end.status) ? WTERMSIG(end.status) : 0;
  session_->vanish(end.rank,
                   number ? "its guard was killed by " + signal_text(number)
                          : formatted("its guard ended with exit code {}", WEXITSTATUS(end.status)),
                   number);
}

void Supervisor::on_continued_guard(const GuardContinued& e) {
  const std::string what = e.is_daemon  ? "the host daemon"
                           : e.rank < 0 ? "the PMIx server"
                                        : formatted("the guard of rank {}", e.rank);
  printer_.say(formatted(
      "hvdrun: {} on {}, process {}, was stopped by a signal for {} s{}; it got SIGCONT, because the job waits for it",
      what, job_.map.hosts[static_cast<std::size_t>(e.host)].name, e.pid, StoppedChildren::limit.count() / 1000,
      e.is_daemon ? " or more" : ""));
}

void Supervisor::on_move(const HostMoved& move) {
  const std::vector<InterfaceAddress> own = interface_addresses();
  const std::string& host = job_.map.hosts[static_cast<std::size_t>(move.host)].name;
  printer_.say(formatted("hvdrun: {} does not answer any more through {}; its connection uses {} now", host,
                         text_with_interface(move.from, own), text_with_interface(move.to, own)));
}

void Supervisor::on_world(const WorldMet& met) {
  if (!parts_->elastic) return;
  parts_->reports.world_is(met.ranks.size(), met.epoch);
  parts_->elastic->met(met.epoch, met.ranks, job_seconds());
  parts_->findings.world_is(met.ranks);
  parts_->watch.world_is(met.ranks);
}

/// Tells the user at once with --verbose; otherwise only if the job fails.
void Supervisor::on_missing_pmix(const PmixMissing& missing) {
  const std::vector<std::string> lines = split(missing.why, '\n');
  mpi_problem_ = {"hvdrun: " + job_.map.hosts[static_cast<std::size_t>(missing.host)].name +
                  " has no PMIx server, so its ranks cannot use MPI: " + lines[0]};
  for (std::size_t i = 1; i < lines.size(); ++i) mpi_problem_.push_back("        " + lines[i]);
  if (!printer_.is_verbose()) return;
  for (const std::string& line : mpi_problem_) printer_.say(line);
}

/// Called when ranks wait for an operation.  Asks all ranks for their last operations, and prints the first difference,
/// once for all incidents that it explains.  Not for elastic jobs: their ranks begin to count operations at different
/// moments.
void Supervisor::tell_difference() {
  if (parts_->elastic) return;
  parts_->operations.ask([this](const wire::JobOperations& operations) {
    if (!parts_->ending.goes_on()) return;
    const wire::RankDifference difference = difference_between(operations);
    if (!difference.lines.empty() && difference.lines == std::exchange(told_difference_, difference.lines)) return;
    const auto tell = [&](const std::string& line) {  // a rank that is merely late has been named already
      if (difference.branches)
        printer_.say("        " + line);
      else
        printer_.detail(line);
    };
    for (const std::string& line : difference.lines) tell(line);
    if (const std::string path = parts_->operations.keep(operations); !path.empty())
      tell("the last operations of all ranks: hvd-timeline desync " + path);
  });
}

}  // namespace hvd::launcher
