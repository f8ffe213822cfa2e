/// The second part of a job's life: the loop.  What happens is given to the part that it is for.
#include "launcher/supervise/supervisor.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/files/leftovers.h"
#include "base/format.h"
#include "base/load.h"
#include "base/network/listen_filter.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"
#include "launcher/remote/start_failure.h"
#include "launcher/report/job_report.h"
#include "launcher/report/top_text.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr auto tick = 100ms;                          // for what no descriptor announces, while there is such a thing
constexpr auto longest_sleep = 30s;                   // a wake-up that was forgotten costs no more
constexpr std::size_t most_pending_bytes = 4u << 20;  // then guards, and so ranks, wait for our reader

std::chrono::milliseconds ms(double seconds) {
  return std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
}

}  // namespace

int Supervisor::run() {
  try {
    start();
    loop();
  } catch (...) {
    abandon();
    throw;
  }
  return conclude();
}

/// hvdrun top.
std::string Supervisor::top(bool as_json) const {
  const double now = seconds_now();
  return as_json ? diagnosis_json(report_.recent_diagnosis(now), report_.recent(now)) + "\n" : top_text(report_, now);
}

/// To the programs that call hvd.report().
void Supervisor::send_reports() {
  const double now = seconds_now();
  if (!report_readers_.take_due(now)) return;
  const std::string json = live_report_json(report_, now);
  if (json.empty()) return;
  for (const int rank : report_readers_.ranks()) session_->send_report(rank, json);
}

/// To the file and to the collector, where they are due, and at the end.
void Supervisor::write_metrics(bool at_end) {
  const double now = seconds_now();
  const bool to_file = metrics_ && (at_end || metrics_->is_due(now)), sends = otlp_ && (at_end || otlp_->is_due(now));
  if (otlp_ && at_end) otlp_->drop();
  if (otlp_) say_metrics_trouble(otlp_->trouble());
  if (!to_file && !sends) return;
  std::size_t ranks = 0;
  for (const RankState& r : session_->ranks()) ranks += r.stage == RankStage::greeted || r.stage == RankStage::running;
  const std::vector<Metric> metrics = job_metrics(report_, ranks, worlds_, now);
  if (to_file) say_metrics_trouble(metrics_->write(metrics_text(metrics, job_id_), now));
  if (!sends) return;
  const auto ns = [](double wall_seconds) { return static_cast<std::int64_t>(wall_seconds * 1e9); };
  otlp_->send(otlp_text(metrics, otlp_->target(), job_id_, ns(started_wall_seconds_), ns(wall_seconds())), now);
  if (!at_end) return;
  otlp_->finish();
  say_metrics_trouble(otlp_->trouble());
}

void Supervisor::say_metrics_trouble(const std::string& trouble) {
  if (!trouble.empty()) say("hvdrun: " + trouble);
}

/// The ranks do not go on: where do they differ?
void Supervisor::keep_operations() {
  if (elastic_) return;  // its ranks begin to count their operations at different moments
  operations_->ask([this](const wire::JobOperations& operations) {
    if (!end_.goes_on()) return;
    const wire::RankDifference difference = difference_between(operations);
    const auto tell = [&](const std::string& line) {  // a rank that is merely late has been named already
      if (difference.branches)
        say("        " + line);
      else
        detail(line);
    };
    for (const std::string& line : difference.lines) tell(line);
    if (const std::string path = operations_->keep(operations); !path.empty())
      tell("the last operations of all ranks: hvd-timeline desync " + path);
  });
}

void Supervisor::tell_mpi_problem() {
  for (const std::string& line : mpi_problem_) say(line);
}

void Supervisor::detail(const std::string& line) {
  if (verbose_) say("hvdrun: " + line);
}

void Supervisor::loop() {
  for (;;) {
    wait_for_events();
    while (const auto number = signals_.next()) on_signal(*number);
    on_starter_output();
    session_->pump([&] { return may_receive(); });
    session_->tick();
    if (input_) input_->turn();
    printer_.turn();
    live_->turn();
    operations_->turn();
    report_.turn(seconds_now());
    if (metrics_ || otlp_) write_metrics(false);
    if (end_.goes_on()) watch_->turn();
    if (elastic_ && end_.goes_on()) elastic_->turn();
    printer_.stdout_outlet().flush_ready();
    printer_.stderr_outlet().flush_ready();
    if (results_) results_->flush_ready();
    if (const int why = printer_.stdout_outlet().closed_by(); why != 0 && end_.goes_on()) {
      (why == EPIPE ? ended_.signal : ended_.output_errno) = why == EPIPE ? SIGPIPE : why;
      stop("the output cannot be written: " + errno_text(why));
    }
    if (!end_.starter_ended() && starter_has_ended()) on_starter_end();
    if (end_.phase() == JobPhase::starting) check_start();
    if (end_.phase() < JobPhase::draining && session_->all_clean() && !more_will_come()) drain();
    check_deadlines();
    if (end_.is_over(Clock::now(), session_->sweeps_open())) return;
  }
}

/// Where all ranks have ended: new ones will be started, perhaps later (a slot may have to wait).
bool Supervisor::more_will_come() const { return elastic_ && end_.goes_on() && elastic_->outlives_its_workers(); }

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  if (may_receive()) fds.push_back({session_->fd(), POLLIN, 0});
  live_->add_fds(fds);
  for (const int fd : starter_->output_fds())
    if (fd >= 0) fds.push_back({fd, POLLIN, 0});
  if (input_ && input_->fd() >= 0) fds.push_back({input_->fd(), POLLIN, 0});
  for (const Outlet* o : {&printer_.stdout_outlet(), &printer_.stderr_outlet()})
    if (o->pending_bytes()) fds.push_back({o->fd(), POLLOUT, 0});
  if (results_ && results_->pending_bytes()) fds.push_back({results_->fd(), POLLOUT, 0});
  ::poll(fds.data(), fds.size(), static_cast<int>(time_to_sleep().count()));
}

/// How long nothing is to be done unless a descriptor says so.
std::chrono::milliseconds Supervisor::time_to_sleep() const {
  // Of a guard on another host only the monitor of its connection says that it is gone.
  const bool is_announced = job_.launcher.kind == LauncherKind::daemons && job_.map.all_local() &&
                            end_.phase() == JobPhase::running && !elastic_ && !metrics_ && !otlp_;
  const bool has_output = printer_.pending_bytes() > 0 || (results_ && results_->pending_bytes() > 0);
  if (!is_announced || has_output || !printer_.is_quiet() || !session_->is_quiet() || !live_->is_quiet() ||
      !operations_->is_quiet() || !watch_->is_quiet() || !report_.is_quiet())
    return tick;
  const double limit = job_.settings.number("time-limit");
  if (limit <= 0) return longest_sleep;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(started_at_ + ms(limit) - Clock::now());
  return std::clamp<std::chrono::milliseconds>(left + 1ms, 0ms, longest_sleep);
}

/// With nowhere to put output and results we stop reading, unless the job ends: then what nobody reads is given up.
bool Supervisor::may_receive() const {
  const std::size_t results = results_ ? results_->pending_bytes() : 0;
  return !end_.goes_on() || std::max(printer_.pending_bytes(), results) < most_pending_bytes;
}

void Supervisor::on_signal(int number) {
  if (number == SIGCHLD) {  // status() looks every time round
    std::vector<pid_t> own = starter_->children();
    if (elastic_)
      if (const auto child = elastic_->child()) own.push_back(*child);
    return reap_orphans(own);
  }
  if (number == SIGUSR1 || number == SIGUSR2) return session_->signal_all(number);
  // The ranks stop and go on; hvdrun itself stays awake, or their guards would take it for dead.
  if (number == SIGTSTP) {
    say("hvdrun: the ranks are stopped; they go on with: kill -CONT " + std::to_string(::getpid()));
    watch_->all_paused(true);
    return session_->signal_all(SIGTSTP);
  }
  if (number == SIGCONT) {
    watch_->all_paused(false);
    return session_->signal_all(SIGCONT);
  }
  const bool again = ended_.signal != 0 && !end_.goes_on();
  if (!ended_.signal) ended_.signal = number;
  if (!again) return stop("hvdrun got signal " + std::to_string(number), number);
  say("hvdrun: killing all ranks");
  session_->stop_all("again", 0, number);
  end_.stop_at_once(Clock::now());
}

void Supervisor::on_starter_output() {
  const std::string fresh = starter_->read_output();
  if (!verbose_ || fresh.empty()) return;
  for (const std::string& line : telling_lines(fresh, 1000)) say(starter_->name() + ": " + line);
}

bool Supervisor::starter_has_ended() {
  if (!starter_->status()) return false;
  return end_.phase() == JobPhase::draining || !starter_->has_handed_on() || session_->daemons_are_gone();
}

/// The starter is gone.  Before everybody has come: the job failed to start.  Later: ranks may still report why.
void Supervisor::on_starter_end() {
  end_.starter_has_ended(Clock::now());
  on_starter_output();
  const int status = *starter_->status();
  detail(starter_->name() + " has ended, " +
         (WIFSIGNALED(status) ? signal_text(WTERMSIG(status)) : "code " + std::to_string(WEXITSTATUS(status))));
  const bool over = end_.phase() == JobPhase::draining || session_->all_clean();
  const auto& ranks = session_->ranks();
  // Its guards may have told before its end is seen here.  Over several hosts they name the host, which says more.
  const bool missed = job_.map.all_local() && std::any_of(ranks.begin(), ranks.end(), [](const RankState& r) {
                        return r.death && r.death->cause == wire::Cause::vanished;
                      });
  if (over && !missed) return;
  if (WIFSIGNALED(status) && !end_.starter_was_signalled()) {
    ended_.starter_fault = "was killed by " + signal_text(WTERMSIG(status));
    ended_.starter_code = 128 + WTERMSIG(status);
  }
  if (end_.phase() == JobPhase::starting && !over && ended_.starter_fault.empty()) fail_start(false);
}

void Supervisor::on_death(const wire::DeathRecord& d) {
  printer_.rank_ended(d.rank);
  report_.ended(d.rank);
  live_->rank_ended(d.rank);
  watch_->rank_ended(d.rank);
  if (input_ && d.rank == input_->rank()) input_->taken(UINT64_MAX);
  timeline_->rank_ended(d.rank, d.cause == wire::Cause::finished ? "" : story(d));
  detail("rank " + std::to_string(d.rank) + " has ended" +
         (d.cause == wire::Cause::finished ? "" : " badly: " + story(d)));
  if (!end_.goes_on()) return;
  if (elastic_ && elastic_->survives(d)) return;
  if (d.cause == wire::Cause::finished) return;
  stop("rank " + std::to_string(d.rank) + " on " + d.host + " has failed");
}

void Supervisor::check_start() {
  if (session_->num_in_stage(RankStage::absent) == 0 && session_->daemons_have_come()) {
    end_.all_have_come();
    if (elastic_) return;
    close_listeners(::getpid());  // nobody is to come any more
    starter_->close_to_strangers(true);
    session_->tell_complete();
    return;
  }
  if (job_.map.all_local()) starter_->close_to_strangers(false);
  const auto now = Clock::now();
  const bool is_time = now >= next_progress_;
  if (const auto ended = starter_->ended_hosts(); is_time || !ended.empty()) {
    const std::vector<int> absent = session_->in_stage(RankStage::absent);
    if (std::any_of(absent.begin(), absent.end(), [&](int r) { return ended.contains(job_.map.host_of(r).name); }))
      fail_start(false);
    if (is_time && !absent.empty()) tell_progress(absent);
  }
  if (now - started_at_ > ms(job_.settings.number("start-timeout"))) fail_start(true);
}

void Supervisor::tell_progress(const std::vector<int>& absent) {
  next_progress_ = Clock::now() + 10s;
  std::vector<std::string> hosts;
  for (const int rank : absent)
    if (const std::string& host = job_.map.host_of(rank).name;
        std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
  if (hosts.size() > 4) hosts.resize(4), hosts.push_back("…");
  say("hvdrun: waiting for " + count_of(static_cast<long long>(absent.size()), "rank") + " to come up on " +
      join(hosts, ", "));
}

/// Grace is over, or the starter does not end: first politely, then not.
void Supervisor::check_deadlines() {
  const auto now = Clock::now();
  const double limit = job_.settings.number("time-limit");
  if (limit > 0 && end_.goes_on() && now - started_at_ > ms(limit)) {
    ended_.time_limit_seconds = limit;
    stop("the time limit is over");
  }
  if (end_.guards_are_late(now)) {
    for (std::size_t r = 0; r < session_->ranks().size(); ++r)
      if (session_->ranks()[r].stage != RankStage::clean)
        session_->vanish(static_cast<int>(r), "it ended together with " + starter_->name());
    return;  // all are clean now; the next turn drains
  }
  // What it says later, our signal may be the reason of.
  if (end_.is_late(now) && !end_.starter_was_signalled() && !ended_.signal && ended_.starter_fault.empty())
    look_for_lost_host();
  if (const int number = end_.due_signal(now)) starter_->signal(number);
}

void Supervisor::stop(const std::string& reason, int signal) {
  detail("ending the job: " + reason);
  if (watch_ && ended_.waits.empty()) ended_.waits = watch_->open_lines();
  // Ranks that have not come yet have no guard to tell.  Those of daemons that are there come soon, and are told then;
  // no rank runs before all daemons have come.
  const bool all_have_guards = job_.launcher.kind == LauncherKind::daemons
                                   ? session_->daemons_have_come()
                                   : session_->num_in_stage(RankStage::absent) == 0;
  end_.stop(Clock::now(), all_have_guards, grace_seconds_);
  session_->stop_all(reason, grace_seconds_, signal);
}

/// HOROVOD_STALL_SHUTDOWN_TIME_SECONDS.
void Supervisor::give_up(const std::string& why) {
  if (!end_.goes_on()) return;
  ended_.hang = why;
  stop("it hangs");
}

void Supervisor::drain() {
  session_->release_all();
  const auto& ranks = session_->ranks();
  const bool cut_off = std::any_of(ranks.begin(), ranks.end(), [](const RankState& r) { return r.gone && !r.local; });
  const bool failed = std::any_of(ranks.begin(), ranks.end(), [](const RankState& r) {
    return r.death && r.death->cause != wire::Cause::finished;
  });
  end_.drain(Clock::now(), cut_off, failed, load_factor());
}

}  // namespace hvd::launcher
