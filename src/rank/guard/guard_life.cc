#include "rank/guard/guard_life.h"

#include <algorithm>

#include "rank/common/time_limits.h"

namespace hvd::rank {

GuardLife::Contact GuardLife::not_connected(Time now) {
  const bool wanted = !alone_ && !stopped_;
  if (wanted && now - born_ < first_contact) return Contact::keep_trying;
  unreached_ = true;
  state_ = State::done;
  return wanted ? Contact::give_up : Contact::give_up_still;
}

GuardLife::StopOrder GuardLife::stop(Time now, milliseconds grace) {
  const bool first = !stopped_;
  stopped_ = true;
  if (state_ == State::waiting) return StopOrder::report_unstarted;
  if (state_ != State::running) return StopOrder::nothing;
  kill_at_ = std::min(kill_at_, now + grace);
  return first ? StopOrder::signal_rank : StopOrder::nothing;
}

bool GuardLife::kill_is_due(Time now) {
  if (state_ != State::running || now < kill_at_) return false;
  kill_at_ = never;
  return true;
}

void GuardLife::rank_ended(Time now) {
  state_ = State::ending;
  kill_at_ = never;
  clean_until_ = now + descendants_limit;
}

GuardLife::EndOrder GuardLife::next_of_end(Time now, const Remains& remains) const {
  const bool has_time = now < clean_until_;
  if (remains.descendants && has_time) return EndOrder::kill_descendants;
  if (remains.outbox_is_full) return EndOrder::wait;
  if (remains.streams && has_time)
    return EndOrder::wait;  // after that time, a process that the guard cannot kill has them open
  return EndOrder::report;
}

void GuardLife::report(Time now) {
  state_ = State::reported;
  reported_at_ = now;
}

GuardLife::StopOrder GuardLife::watch(Time now, bool hvdrun_is_gone, bool outbox_is_empty) {
  if (state_ == State::reported) {
    const auto waited = now - reported_at_;
    if (alone_ && (hvdrun_is_gone || (waited > orphan_linger && outbox_is_empty) || waited > last_message_limit))
      state_ = State::done;
    return StopOrder::nothing;
  }
  if (state_ == State::done || !(hvdrun_is_gone || alone_)) return StopOrder::nothing;
  return stop(now, grace_when_lost);
}

bool GuardLife::look_is_due(Time now) {
  if (now < look_at_) return false;
  look_at_ = now + tick;
  return true;
}

bool GuardLife::steps_are_due(Time now) {
  if (now < steps_at_) return false;
  steps_at_ = now + steps_every;
  return true;
}

GuardLife::milliseconds GuardLife::patience(Time now, const Awaited& awaited) const {
  const bool is_announced = awaited.is_announced && state_ == State::running && !alone_;
  milliseconds most = is_announced ? longest_sleep : tick;
  if (state_ == State::connecting) most = milliseconds(20);  // the first connection has no descriptor for poll()
  if (state_ == State::ending) most = milliseconds(5);
  if (awaited.takes_picture) most = milliseconds(10);
  if (!awaited.outbox_is_empty) most = std::min(most, milliseconds(20));
  const Time next = std::min(kill_at_, awaited.next);
  if (next == never) return most;
  const auto left = std::chrono::duration_cast<milliseconds>(next - now) + milliseconds(1);
  return std::clamp(left, milliseconds(0), most);
}

}  // namespace hvd::rank
