/// When a guard gives up, kills, reports and ends: one case for each limit.
#include "rank/guard/guard_life.h"

#include <doctest/doctest.h>

#include "rank/common/time_limits.h"
#include "rank/under_mpirun/mpirun_daemon.h"

using namespace hvd::rank;
using namespace std::chrono_literals;

namespace {

using Life = GuardLife;
using State = GuardLife::State;
using StopOrder = GuardLife::StopOrder;

constexpr Life::Time start{};

Life running() {
  Life life(start);
  life.connected();
  life.rank_started();
  return life;
}

Life reported_at(Life::Time now) {
  Life life = running();
  life.rank_ended(now);
  life.report(now);
  return life;
}

}  // namespace

TEST_CASE("guard life: hvdrun has 15 s to answer") {
  Life life(start);
  CHECK(life.not_connected(start + first_contact - 1ms) == Life::Contact::keep_trying);
  CHECK(life.state() == State::connecting);
  CHECK(life.not_connected(start + first_contact) == Life::Contact::give_up);
  CHECK(life.is_done());
  CHECK(life.has_failed_to_connect());
}

TEST_CASE("guard life: a guard that is stopped, or loses its parent, before the first contact gives up in silence") {
  Life stopped(start), orphan(start);
  CHECK(stopped.stop(start, 5s) == StopOrder::nothing);
  CHECK(orphan.parent_died(start) == StopOrder::nothing);
  for (Life* life : {&stopped, &orphan}) {
    CHECK(life->not_connected(start + 1ms) == Life::Contact::give_up_still);
    CHECK(life->is_done());
  }
}

TEST_CASE("guard life: a rank that waits for its payload is not started after a stop") {
  Life life(start);
  life.connected();
  CHECK(life.stop(start, 5s) == StopOrder::report_unstarted);
  CHECK(life.is_stopped());
}

TEST_CASE("guard life: a stop signals the rank once, and the grace ends with a kill, once") {
  Life life = running();
  CHECK_FALSE(life.kill_is_due(start + 1h));
  CHECK(life.stop(start, 5s) == StopOrder::signal_rank);
  CHECK(life.stop(start, 5s) == StopOrder::nothing);
  CHECK_FALSE(life.kill_is_due(start + 5s - 1ms));
  CHECK(life.kill_is_due(start + 5s));
  CHECK_FALSE(life.kill_is_due(start + 6s));
}

TEST_CASE("guard life: a second stop can only shorten the grace") {
  Life shorter = running(), longer = running();
  shorter.stop(start, 5s);
  shorter.stop(start + 1s, 1s);
  CHECK(shorter.kill_is_due(start + 2s));
  longer.stop(start, 5s);
  longer.stop(start + 1s, 60s);
  CHECK(longer.kill_is_due(start + 5s));
}

TEST_CASE("guard life: a connection may be lost for 1.5 s; then the rank has 400 ms") {
  CHECK_FALSE(Life::is_gone(std::nullopt));
  CHECK_FALSE(Life::is_gone(Life::longest_loss));
  CHECK(Life::is_gone(Life::longest_loss + 1ms));
  Life life = running();
  CHECK(life.watch(start, false, true) == StopOrder::nothing);
  CHECK(life.watch(start, true, true) == StopOrder::signal_rank);
  CHECK(life.watch(start + 100ms, true, true) == StopOrder::nothing);
  CHECK_FALSE(life.kill_is_due(start + 399ms));
  CHECK(life.kill_is_due(start + 400ms));
}

TEST_CASE("guard life: the rank of a guard whose parent died has 400 ms") {
  Life life = running();
  CHECK(life.parent_died(start) == StopOrder::signal_rank);
  CHECK(life.is_alone());
  CHECK(life.kill_is_due(start + 400ms));
}

TEST_CASE("guard life: killed descendants have 2 s to disappear, and streams that others hold as long") {
  Life life = running();
  life.stop(start, 5s);
  life.rank_ended(start);
  CHECK_FALSE(life.kill_is_due(start + 1h));
  const auto last = start + Life::descendants_limit - 1ms, over = start + Life::descendants_limit;
  CHECK(life.next_of_end(start, {}) == Life::EndOrder::report);
  CHECK(life.next_of_end(last, {.descendants = true}) == Life::EndOrder::kill_descendants);
  CHECK(life.next_of_end(over, {.descendants = true}) == Life::EndOrder::report);
  CHECK(life.next_of_end(last, {.streams = true}) == Life::EndOrder::wait);
  CHECK(life.next_of_end(over, {.streams = true}) == Life::EndOrder::report);
  CHECK(life.next_of_end(over + 1h, {.outbox_is_full = true}) == Life::EndOrder::wait);
}

TEST_CASE("guard life: a guard that has reported waits for its release") {
  Life life = reported_at(start);
  life.watch(start + 1h, false, true);
  CHECK(life.state() == State::reported);
  CHECK_FALSE(life.must_end_daemon(false));
  life.release();
  CHECK(life.is_done());
  CHECK(life.is_released());
}

TEST_CASE("guard life: without hvdrun a guard that has reported ends mpirun's daemon") {
  Life life = reported_at(start);
  life.watch(start + 10s, true, true);
  CHECK(life.must_end_daemon(true));
  life.finish();
  CHECK(life.is_done());
  CHECK_FALSE(life.is_released());
}

TEST_CASE("guard life: without a parent the record has 300 ms after it was sent, at most 1 s in all") {
  Life sent = reported_at(start);
  sent.parent_died(start);
  sent.watch(start + Life::orphan_linger, false, true);
  CHECK(sent.state() == State::reported);
  CHECK_FALSE(sent.must_end_daemon(true));
  sent.watch(start + Life::orphan_linger + 1ms, false, true);
  CHECK(sent.is_done());

  Life unsent = reported_at(start);
  unsent.parent_died(start);
  unsent.watch(start + Life::last_message_limit, false, false);
  CHECK(unsent.state() == State::reported);
  unsent.watch(start + Life::last_message_limit + 1ms, false, false);
  CHECK(unsent.is_done());

  Life cut_off = reported_at(start);
  cut_off.parent_died(start);
  cut_off.watch(start, true, false);
  CHECK(cut_off.is_done());
}

TEST_CASE("guard life: memory is looked at twice a second, steps are sent once a second") {
  Life life = running();
  CHECK(life.look_is_due(start));
  CHECK_FALSE(life.look_is_due(start + Life::tick - 1ms));
  CHECK(life.look_is_due(start + Life::tick));
  CHECK(life.steps_are_due(start));
  CHECK_FALSE(life.steps_are_due(start + Life::steps_every - 1ms));
  CHECK(life.steps_are_due(start + Life::steps_every));
}

TEST_CASE("guard life: how long it sleeps") {
  const Life::Awaited nothing{}, announced{.is_announced = true};
  Life life(start);
  CHECK(life.patience(start, announced) == 20ms);
  life.connected();
  CHECK(life.patience(start, announced) == Life::tick);
  life.rank_started();
  CHECK(life.patience(start, nothing) == Life::tick);
  CHECK(life.patience(start, announced) == Life::longest_sleep);
  CHECK(life.patience(start, {.is_announced = true, .takes_picture = true}) == 10ms);
  CHECK(life.patience(start, {.is_announced = true, .outbox_is_empty = false}) == 20ms);
  CHECK(life.patience(start, {.is_announced = true, .next = start + 50ms}) == 51ms);
  CHECK(life.patience(start + 1s, {.is_announced = true, .next = start}) == 0ms);
  life.stop(start, 100ms);
  CHECK(life.patience(start, announced) == 101ms);
  life.rank_ended(start);
  CHECK(life.patience(start, announced) == 5ms);
}

TEST_CASE("mpirun's daemon: other guards have 5 s to end before it is asked, and it has 1 s after that") {
  using Order = DaemonEnd::Order;
  DaemonEnd none, first, last;
  CHECK(none.next(start, start, false, false) == Order::done);
  CHECK(first.next(start + DaemonEnd::others_may_end - 1ms, start, true, true) == Order::wait);
  CHECK(first.next(start + DaemonEnd::others_may_end, start, true, true) == Order::terminate);
  CHECK(last.next(start, start, true, false) == Order::terminate);
  CHECK(last.next(start + DaemonEnd::daemon_may_end - 1ms, start, true, false) == Order::wait);
  CHECK(last.next(start + DaemonEnd::daemon_may_end, start, true, false) == Order::kill);
}
