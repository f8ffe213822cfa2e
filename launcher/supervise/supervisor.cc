#include "launcher/supervise/supervisor.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "base/environment.h"
#include "base/files/leftovers.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"
#include "launcher/supervise/end/conclude.h"
#include "launcher/supervise/supervise.h"
#include "launcher/verdict/verdict_output.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr auto tick = 100ms;         // for changes that no descriptor announces, while there may be some
constexpr auto longest_sleep = 30s;  // a lost wake-up delays the loop by this time at most

PrinterOptions printer_options(const Job& job) {
  PrinterOptions options;
  for (const MappedRank& p : job.map.ranks) options.hosts.push_back(job.map.host_of(p.rank).name);
  options.folder = job.settings.text("output-filename");
  options.timestamps = job.settings.flag("prefix-output-with-timestamp");
  options.verbose = job.settings.flag("verbose");
  if (job.settings.has("collapse")) options.collapse = job.settings.flag("collapse");
  const char* no_colour = environment_value("NO_COLOR");
  const char* terminal = environment_value("TERM");
  options.may_redraw = terminal && *terminal && std::string_view(terminal) != "dumb";
  options.may_colour = !(no_colour && *no_colour) && !(terminal && std::string_view(terminal) == "dumb");
  if (job.elastic) options.collapse = false;
  options.reader = job.settings.integer("stdin").value_or(-1);
  return options;
}

std::string timeline_path(const Settings& settings) {
  const std::string path = settings.text("timeline-filename");
  return path == "DYNAMIC" ? "" : path;
}

/// For hvdrun ps: the programs, without their arguments.
std::string title_of(const Job& job) {
  const auto name = [](const wire::Payload& p) { return (p.kind == wire::PayloadKind::module ? "-m " : "") + p.name; };
  std::string title = name(job.payload.wire);
  for (std::size_t i = 1; i < job.programs.size(); ++i) title += " : " + name(job.programs[i].payload);
  return title;
}

std::optional<HangLimits> hang_limits(const Settings& settings) {
  if (!settings.flag("stall-check")) return std::nullopt;
  HangLimits limits;
  limits.warn = settings.number("stall-check-warning-time-seconds");
  limits.shutdown = settings.number("stall-check-shutdown-time-seconds");
  limits.hang = std::min(limits.hang, limits.warn);
  return limits;
}

/// Writes the verdict on a job that could not start.  Returns a message if a file could not be written.
std::string tell_no_start(const Job& job, const std::string& id, double started_wall_seconds, const Error& e) {
  const JudgedJob judged{id, what_runs(job), started_wall_seconds, wall_seconds(), 0, false, {}};
  return tell_failed_start(job.settings.text("verdict-filename"), judged, e);
}

}  // namespace

int supervise(Job& job) {
  std::unique_ptr<Supervisor> supervisor;
  try {
    supervisor = std::make_unique<Supervisor>(job);
  } catch (const Error& e) {
    const std::string trouble = tell_no_start(job, "", wall_seconds(), e);
    if (!trouble.empty()) std::fprintf(stderr, "%s\n", printable(trouble).c_str());
    throw;
  }
  return supervisor->run();
}

Supervisor::Supervisor(Job& job)
    : job_(job),
      started_at_(Clock::now()),
      clock_(monotonic_seconds()),
      started_wall_seconds_(wall_seconds()),
      printer_(printer_options(job)),
      timeline_(timeline_path(job.settings), job.map,
                static_cast<std::uint64_t>(job.settings.integer("timeline-max-mb").value_or(1024)) << 20),
      streams_(job.settings, printer_),
      launch_(job, folder_, timeline_, printer_, streams_.collects_results()) {}

Supervisor::Parts::Parts(Supervisor& owner, const EventSink& events)
    : arrivals(owner.job_, owner.folder_.path(), *owner.session_, owner.launch_, owner.printer_, owner.clock_),
      ending(owner.job_, owner.started_at_, *owner.session_, owner.launch_, arrivals, owner.printer_),
      reports(owner.job_, owner.launch_.job_id(), owner.folder_.path(), owner.started_wall_seconds_, *owner.session_,
              owner.printer_),
      operations(*owner.session_, owner.job_.map, owner.launch_.job_id()),
      elastic(owner.job_.elastic
                  ? std::make_unique<ElasticPart>(owner.job_, *owner.session_, owner.printer_, owner.launch_, events)
                  : nullptr),
      server({*owner.session_, owner.job_.map, reports, owner.timeline_, operations, elastic.get()},
             owner.folder_.path(),
             {owner.launch_.job_id(), title_of(owner.job_), owner.started_wall_seconds_,
              owner.job_.settings.number("grace")},
             events),
      watch(*owner.session_, owner.job_.map, hang_limits(owner.job_.settings), elastic != nullptr, events),
      findings(owner.timeline_) {}

int Supervisor::run() {
  try {
    start();
    loop();
  } catch (const Error& e) {
    abandon();
    const std::string trouble = tell_no_start(job_, launch_.job_id(), started_wall_seconds_, e);
    if (!trouble.empty()) printer_.say(trouble);
    throw;
  } catch (...) {
    abandon();
    throw;
  }
  return conclude();
}

void Supervisor::start() {
  become_subreaper();
  const EventSink events = [this](const JobEvent& event) { on_event(event); };
  session_ = launch_.begin(events);
  streams_.begin(job_.settings, *session_);
  parts_ = std::make_unique<Parts>(*this, events);
}

void Supervisor::loop() {
  ElasticPart* const elastic = parts_->elastic.get();
  Ending& ending = parts_->ending;
  for (;;) {
    wait_for_events();
    clock_.turn(monotonic_seconds());
    while (const auto number = signals_.next()) on_signal(*number);
    launch_.read_starter_output();
    launch_.continue_stopped();
    session_->pump([&] { return may_receive(); });
    session_->tick();
    streams_.turn();
    parts_->server.turn();
    parts_->operations.turn();
    parts_->reports.turn();
    if (ending.goes_on()) parts_->watch.turn();
    if (elastic && ending.goes_on()) elastic->turn(job_seconds());
    streams_.flush();
    if (const int error = streams_.write_error(); error != 0) ending.stop_for_output(error);
    ending.turn(elastic && elastic->outlives_its_workers());
    if (ending.is_over()) return;
  }
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  if (may_receive()) fds.push_back({session_->fd(), POLLIN, 0});
  parts_->server.add_fds(fds);
  for (const int fd : launch_.starter()->output_fds())
    if (fd >= 0) fds.push_back({fd, POLLIN, 0});
  streams_.add_fds(fds);
  ::poll(fds.data(), fds.size(), static_cast<int>(time_to_sleep().count()));
}

/// The longest time that the loop may sleep while no descriptor is ready.
std::chrono::milliseconds Supervisor::time_to_sleep() const {
  // Only the monitor of a connection tells that a guard on another host is gone.
  const bool is_announced = job_.launcher.kind == LauncherKind::daemons && job_.map.all_local() &&
                            parts_->ending.phase() == JobPhase::running && !parts_->elastic;
  const bool is_quiet = session_->is_quiet() && streams_.is_quiet() && parts_->server.is_quiet() &&
                        parts_->operations.is_quiet() && parts_->watch.is_quiet() && parts_->reports.is_quiet() &&
                        !launch_.has_stopped();
  return is_announced && is_quiet ? parts_->ending.time_to_limit(longest_sleep) : tick;
}

void Supervisor::on_signal(int number) {
  switch (number) {
    case SIGCHLD: {  // the starter's status is looked at in each turn
      std::vector<pid_t> own = launch_.starter()->children();
      if (parts_->elastic)
        if (const auto child = parts_->elastic->child()) own.push_back(*child);
      launch_.look_for_stopped();
      return reap_orphans(own);
    }
    case SIGUSR1:
    case SIGUSR2:
      return session_->signal_all(number);
    case SIGTSTP:  // the ranks stop; hvdrun itself stays awake, or their guards would take it for dead
      printer_.say(formatted("hvdrun: the ranks are stopped; they go on with: kill -CONT {}", ::getpid()));
      parts_->watch.all_paused(true);
      clock_.pause(true, monotonic_seconds());
      return session_->signal_all(SIGTSTP);
    case SIGCONT:
      parts_->watch.all_paused(false);
      clock_.pause(false, monotonic_seconds());
      return session_->signal_all(SIGCONT);
    default:
      return parts_->ending.stop_for_signal(number);
  }
}

/// An error ended the loop: nothing may stay behind.
void Supervisor::abandon() noexcept {
  try {
    if (session_) {
      session_->stop_all("the job failed to start", 0, SIGTERM);
      session_->release_all();
    }
    RankStarter* const starter = launch_.starter();
    if (starter) starter->signal(SIGTERM);
    for (int i = 0; starter && !starter->status() && i < 10; ++i) {
      if (parts_) session_->pump({});  // the parts take the last reports of the ranks
      ::poll(nullptr, 0, 30);
    }
    if (starter) starter->signal(SIGKILL);
    kill_descendants(std::chrono::seconds(2));
    remove_shared_memory_leftovers(started_wall_seconds_ - 1);
    printer_.flush_all(500);
  } catch (...) {}
}

int Supervisor::conclude() {
  parts_->ending.keep_waits(parts_->watch.open_lines(), parts_->watch.open_hang());
  return launcher::conclude({job_, launch_.job_id(), *session_, parts_->ending, parts_->elastic.get(), timeline_,
                             parts_->reports, parts_->operations, streams_, printer_, cleanup_, parts_->findings.all(),
                             mpi_problem_, started_wall_seconds_,
                             std::chrono::duration<double>(Clock::now() - started_at_).count()});
}

}  // namespace hvd::launcher
