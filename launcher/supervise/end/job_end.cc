#include "launcher/supervise/end/job_end.h"

#include <csignal>

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr auto guards_report_deaths = 1s;  // after they have killed their ranks
constexpr auto starter_may_end = 3000ms;   // after release
constexpr auto starter_may_act = 1s;       // on SIGTERM
constexpr auto cut_short_to = 300ms;
constexpr auto hosts_may_tell = 2s;         // after the starter's end: which leftovers they had
constexpr auto guards_may_report = 1500ms;  // after the starter's end

}  // namespace

void JobEnd::stop(Time now, bool all_have_guards, double grace_seconds) {
  phase_ = JobPhase::stopping;
  deadline_ = now;
  if (all_have_guards)
    *deadline_ += guards_report_deaths + std::chrono::milliseconds(static_cast<long long>(grace_seconds * 1000));
}

void JobEnd::stop_at_once(Time now) { deadline_ = now + cut_short_to; }

void JobEnd::drain(Time now, bool cut_off, bool failed, double patience) {
  phase_ = JobPhase::draining;
  patience_ = patience;
  // mpirun waits for a daemon on a host that is cut off.  After a failure mpirun may hang in its own clean-up (4.1
  // does, over two hosts).  By then, its last useful output has arrived.
  const Time limit = now + stretched(starter_may_end / (cut_off ? 6 : failed ? 3 : 1));
  if (!deadline_ || *deadline_ > limit) deadline_ = limit;
}

bool JobEnd::guards_are_late(Time now) const {
  return starter_ended_at_ && phase_ < JobPhase::draining && now - *starter_ended_at_ > guards_may_report;
}

int JobEnd::due_signal(Time now) {
  if (!is_late(now)) return 0;
  deadline_ = now + starter_may_act;
  ++signals_sent_;
  return signals_sent_ == 1 ? SIGTERM : signals_sent_ == 2 ? SIGKILL : 0;
}

std::chrono::milliseconds JobEnd::stretched(std::chrono::milliseconds limit) const {
  return std::chrono::milliseconds(static_cast<long long>(static_cast<double>(limit.count()) * patience_));
}

bool JobEnd::is_over(Time now, int hosts_open) const {
  return phase_ == JobPhase::draining && starter_ended_at_ &&
         (hosts_open == 0 || now - *starter_ended_at_ > stretched(hosts_may_tell));
}

}  // namespace hvd::launcher
