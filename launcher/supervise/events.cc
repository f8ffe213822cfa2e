/// What guards and host daemons report, and whom it concerns.
#include <sys/wait.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "launcher/supervise/supervisor.h"

namespace hvd::launcher {

SessionEvents Supervisor::events() {
  SessionEvents e;
  e.hello = [this](const wire::Hello& h) {
    const MappedHost& planned = job_.map.host_of(h.rank);
    const bool elsewhere =
        h.host != planned.name && std::any_of(job_.map.hosts.begin(), job_.map.hosts.end(),
                                              [&](const MappedHost& p) { return !p.local && p.name == h.host; });
    if (h.local != planned.local || elsewhere)
      throw Error(Code::unavailable, "mpirun",
                  "put rank " + std::to_string(h.rank) + " on " + h.host + " instead of " + planned.name,
                  "do --mpi-args or OMPI_ variables change the mapping?");
    if (h.version != HVD_VERSION && job_.map.host_of(h.rank).name != warned_host_) {
      warned_host_ = planned.name;
      say("hvdrun: " + planned.name + " has hvdrank " + h.version +
          ", this is hvdrun " HVD_VERSION ": install the same wheel everywhere");
    }
    detail("rank " + std::to_string(h.rank) + " is there, process " + std::to_string(h.pid) + " on " + h.host);
    report_.place(h.rank, planned.name);
    timeline_->rank_came(h.rank, h.local);
  };
  e.started = [this](int rank, const wire::StartReport& s) {
    report_.give_cores(rank, static_cast<int>(s.cpus.size()));
    const std::string where = s.cpus.empty() ? "unbound" : "cores " + ranges(s.cpus);
    detail("rank " + std::to_string(rank) + " runs as process " + std::to_string(s.pid) + ", " + where +
           (s.python.empty() ? "" : ", Python " + s.python));
    if (input_ && rank == input_->rank()) input_->begin();
    timeline_->rank_runs(*session_, rank);
    if (!s.warning.empty()) say("hvdrun: rank " + std::to_string(rank) + ": " + s.warning);
  };
  e.output = [this](int rank, int stream, std::string_view bytes) {
    printer_.rank_bytes(rank, stream == 2 ? Printer::err : Printer::out, bytes);
  };
  e.result = [this](int rank, std::string_view piece) {
    if (results_ && end_.goes_on()) results_->put(rank, piece);
  };
  e.death = [this](const wire::DeathRecord& d) { on_death(d); };
  e.trace = [this](int rank, std::string_view body) { timeline_->records(rank, body); };
  e.clock = [this](int rank, std::int64_t sent, std::int64_t received, std::int64_t theirs) {
    timeline_->clock_sample(rank, sent, received, theirs);
  };
  e.steps = [this](int rank, const std::vector<wire::StepRecord>& steps) {
    report_.add(rank, steps, seconds_now());
    send_reports();
  };
  e.want_report = [this](int rank) { report_readers_.add(rank); };
  e.operations = [this](int rank, wire::RankOperations operations) { operations_->take(rank, std::move(operations)); };
  e.stack = [this](int rank, const wire::StackPicture& picture) { live_->stack(rank, picture); };
  e.console = [this](int rank, std::string_view body) { live_->console(rank, body); };
  e.stall = [this](int rank, std::vector<wire::Stall> stalls) { watch_->stall(rank, std::move(stalls)); };
  e.collective_wait = [this](int rank, const wire::CollectiveWait& wait) { watch_->collective_wait(rank, wait); };
  e.standing = [this](int rank, const wire::StatusReport& standing) { watch_->standing(rank, standing); };
  e.swept = [this](const std::string& host, const wire::CleanupResult& swept) { cleanup_.add(host, swept); };
  e.taken = [this](int rank, std::uint64_t bytes) {
    if (input_ && rank == input_->rank()) input_->taken(bytes);
  };
  e.paused = [this](int rank, bool paused) { watch_->paused(rank, paused); };
  e.note = [this](const std::string& line) { detail(line); };
  return e;
}

DaemonEvents Supervisor::daemon_events() {
  DaemonEvents e;
  e.abort = [this](int rank, int status) { session_->abort(rank, status, "it called MPI_Abort"); };
  e.spawn = [this](int rank) {
    session_->abort(
        rank, static_cast<int>(Code::usage),
        "it called MPI_Comm_spawn, which hvdrun does not serve: start all ranks with -np, or use --launcher "
        "mpirun");
  };
  e.no_server = [this](int host, const std::string& why) {
    const std::vector<std::string> lines = split(why, '\n');
    mpi_problem_ = {"hvdrun: " + job_.map.hosts[static_cast<std::size_t>(host)].name +
                    " has no PMIx server, so its ranks cannot use MPI: " + lines[0]};
    for (std::size_t i = 1; i < lines.size(); ++i) mpi_problem_.push_back("        " + lines[i]);
    if (verbose_) tell_mpi_problem();
  };
  if (job_.elastic) {
    e.waits = [this](int rank) { elastic_->waits(rank); };
    e.expects = [this](int rank) { return elastic_->expects(rank); };
    e.met = [this](std::uint64_t epoch, const std::vector<std::int32_t>& ranks) {
      report_.expect(ranks.size());
      worlds_ = epoch;
      elastic_->met(epoch, ranks);
      watch_->world_is(ranks);
    };
  }
  e.guard_ended = [this](int rank, int status) {
    if (session_->ranks()[static_cast<std::size_t>(rank)].stage != RankStage::absent) return;  // its connection tells
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    session_->vanish(rank,
                     number ? "its guard was killed by " + signal_text(number)
                            : "its guard ended with exit code " + std::to_string(WEXITSTATUS(status)),
                     number);
  };
  return e;
}

}  // namespace hvd::launcher
