#include "launcher/supervise/end/ending.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/format.h"
#include "base/load.h"
#include "base/text.h"
#include "launcher/mpirun/mpirun_output.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

std::chrono::milliseconds ms(double seconds) {
  return std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
}

}  // namespace

Ending::Ending(const Job& job, Clock::time_point started_at, Session& session, JobLaunch& launch, Arrivals& arrivals,
               Printer& printer)
    : job_(job),
      started_at_(started_at),
      session_(session),
      launch_(launch),
      arrivals_(arrivals),
      printer_(printer),
      grace_seconds_(job.settings.number("grace")) {}

void Ending::stop(const std::string& reason, int signal) {
  printer_.detail("ending the job: " + reason);
  // A rank without a guard cannot receive the stop request.  If all daemons have connected, their guards connect soon,
  // and get the request then.  No rank runs before all daemons have connected.
  const bool all_have_guards = job_.launcher.kind == LauncherKind::daemons
                                   ? session_.daemons_have_come()
                                   : session_.num_in_stage(RankStage::absent) == 0;
  end_.stop(Clock::now(), all_have_guards, grace_seconds_);
  session_.stop_all(reason, grace_seconds_, signal);
}

void Ending::stop_for_signal(int number) {
  const bool again = reason_.signal != 0 && !goes_on();
  if (!reason_.signal) reason_.signal = number;
  const int for_ranks = number == SIGQUIT ? SIGTERM : number;  // Python would end by SIGQUIT without saving anything
  if (!again) return stop(formatted("hvdrun got signal {}", number), for_ranks);
  printer_.say("hvdrun: killing all ranks");
  session_.stop_all("again", 0, for_ranks);
  end_.stop_at_once(Clock::now());
}

void Ending::stop_for_output(int error) {
  if (!goes_on()) return;
  (error == EPIPE ? reason_.signal : reason_.output_errno) = error == EPIPE ? SIGPIPE : error;
  stop("the output cannot be written: " + errno_text(error));
}

void Ending::stop_for_hang(const std::string& why) {
  if (!goes_on()) return;
  reason_.hang = why;
  stop("it hangs");
}

void Ending::stop_elastic(const std::string& why) {
  reason_.elastic = why;
  stop("the elastic job cannot go on");
}

void Ending::turn(bool outlives_its_ranks) {
  if (!end_.starter_ended() && starter_has_ended()) take_starter_end();
  if (phase() == JobPhase::starting && arrivals_.turn()) all_have_come();
  if (phase() == JobPhase::running) arrivals_.close_to_strangers();
  if (phase() < JobPhase::draining && session_.all_clean() && !(goes_on() && outlives_its_ranks)) drain();
  check_deadlines();
}

bool Ending::starter_has_ended() const {
  if (!starter().status()) return false;
  return phase() == JobPhase::draining || session_.daemons_are_gone() ||
         !(starter().has_handed_on() || session_.daemons_have_moved());
}

/// The starter's end before all ranks have come is a failed start.  Later, ranks may still report why they end.
void Ending::take_starter_end() {
  end_.starter_has_ended(Clock::now());
  launch_.read_starter_output();
  const int status = *starter().status();
  printer_.detail(starter().name() + " has ended, " +
                  (WIFSIGNALED(status) ? signal_text(WTERMSIG(status)) : formatted("code {}", WEXITSTATUS(status))));
  const bool over = phase() == JobPhase::draining || session_.all_clean();
  // The guards may have reported before.  Over several hosts their reports name the host, which says more.
  const bool missed = job_.map.all_local() && std::ranges::any_of(session_.ranks(), [](const RankState& r) {
                        return r.death && r.death->cause == wire::Cause::vanished;
                      });
  if (over && !missed) return;
  if (WIFSIGNALED(status) && !end_.starter_was_signalled()) {
    reason_.starter_fault = "was killed by " + signal_text(WTERMSIG(status));
    reason_.starter_code = 128 + WTERMSIG(status);
  }
  if (phase() == JobPhase::starting && !over && reason_.starter_fault.empty()) arrivals_.fail(false);
}

void Ending::drain() {
  session_.release_all();
  const bool cut_off = session_.daemons_have_moved() ||
                       std::ranges::any_of(session_.ranks(), [](const RankState& r) { return r.gone && !r.local; });
  const bool failed = std::ranges::any_of(
      session_.ranks(), [](const RankState& r) { return r.death && r.death->cause != wire::Cause::finished; });
  end_.drain(Clock::now(), cut_off, failed, load_factor());
}

/// After a deadline the starter gets SIGTERM, then SIGKILL.
void Ending::check_deadlines() {
  const auto now = Clock::now();
  const double limit = job_.settings.number("time-limit");
  if (limit > 0 && goes_on() && now - started_at_ > ms(limit)) {
    reason_.time_limit_seconds = limit;
    stop("the time limit is over");
  }
  if (end_.guards_are_late(now)) {
    for (std::size_t r = 0; r < session_.ranks().size(); ++r)
      if (session_.ranks()[r].stage != RankStage::clean)
        session_.vanish(static_cast<int>(r), "it ended together with " + starter().name());
    return;  // all ranks are clean now; the next turn drains
  }
  // Our own signal may be the reason for the starter's later words.
  if (end_.is_late(now) && !end_.starter_was_signalled() && !reason_.signal && reason_.starter_fault.empty())
    look_for_lost_host();
  const int number = end_.due_signal(now);
  if (number == 0) return;
  session_.stop_daemons();
  starter().signal(number);
}

std::chrono::milliseconds Ending::time_to_limit(std::chrono::milliseconds longest) const {
  const double limit = job_.settings.number("time-limit");
  if (limit <= 0) return longest;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(started_at_ + ms(limit) - Clock::now());
  return std::clamp<std::chrono::milliseconds>(left + 1ms, 0ms, longest);
}

void Ending::look_for_lost_host() {
  if (job_.elastic || session_.daemons_have_moved()) return;
  reason_.starter_fault = lost_connection(starter().output(), job_.map);
  if (!reason_.starter_fault.empty()) reason_.starter_code = static_cast<int>(Code::peer_lost);
}

const EndReason& Ending::conclude() {
  if (reason_.starter_fault.empty() && !end_.starter_was_signalled()) look_for_lost_host();
  reason_.mpirun_said = first_words(starter().output());
  reason_.starter = starter().name();
  return reason_;
}

}  // namespace hvd::launcher
