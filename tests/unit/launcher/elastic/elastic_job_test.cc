/// The decisions for an elastic job: deaths, new workers, limits.
#include "launcher/elastic/elastic_job.h"

#include <doctest/doctest.h>

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Ranks = std::vector<std::int32_t>;

/// The record of a rank that SIGKILL ended. Its guard names the host "here", the second name of the launcher's machine.
wire::DeathRecord killed(int rank) {
  wire::DeathRecord d;
  d.rank = rank, d.host = "here", d.cause = wire::Cause::signalled, d.code = 9;
  return d;
}

wire::DeathRecord raised(int rank, const std::string& traceback) {
  wire::DeathRecord d;
  d.rank = rank, d.host = "a", d.cause = wire::Cause::exited, d.code = 1, d.traceback = traceback;
  return d;
}

wire::DeathRecord finished(int rank) {
  wire::DeathRecord d;
  d.rank = rank, d.host = "a";
  return d;
}

/// Ranks 0 to n-1 of host a, which has @p slots slots, in their first world.
ElasticJob job_of(int n, int slots, ElasticLimits limits) {
  std::vector<ElasticWorker> workers;
  for (int i = 0; i < n; ++i) workers.push_back({i, {"a", i}, WorkerStage::starting});
  ElasticJob job(limits, workers, {{"a", slots}}, SlotHistory());
  Ranks all;
  for (int i = 0; i < n; ++i) job.waits(i, 0), all.push_back(i);
  job.met(1, all, 0);
  CHECK(job.turn(0).lines.empty());
  return job;
}

}  // namespace

TEST_CASE("elastic job: survivors go on at once; a new worker comes in when it is ready") {
  ElasticJob job = job_of(3, 3, {{2, {}}, 600, {}});
  CHECK(job.survives(killed(1), 10));
  ElasticOrders orders = job.turn(10);
  CHECK(orders.invite == Ranks{0, 2});
  REQUIRE(orders.start.size() == 1);
  CHECK(orders.start[0].number == 3);
  CHECK(orders.start[0].place == SlotPlace{"a", 1});
  CHECK(orders.tell.empty());
  job.met(2, {0, 2}, 10.25);
  CHECK(job.is_excused(1));
  orders = job.turn(11);
  REQUIRE(orders.lines.size() == 1);
  CHECK(orders.lines[0] == "epoch 2: 3 → 2 ranks (a 2), 0.25 s after: rank 1 on a was killed by signal 9 (SIGKILL)");
  CHECK_FALSE(orders.invite);

  job.waits(3, 20);
  orders = job.turn(20);
  CHECK(orders.invite == Ranks{0, 2, 3});
  CHECK(orders.tell == std::vector<int>{0, 2});
  CHECK(orders.change == HostChange::added);
  job.met(3, {0, 2, 3}, 21);
  CHECK(job.turn(21).lines.at(0) == "epoch 3: 2 → 3 ranks (a 3): 1 worker joined on a");
}

TEST_CASE("elastic job: for a new worker that cannot come another is started, and its slot is not blamed") {
  ElasticJob job = job_of(3, 3, {{2, {}}, 600, {}});
  CHECK(job.survives(killed(1), 10));
  CHECK(job.turn(10).start.at(0).number == 3);
  for (int number = 3; number < 6; ++number) {
    job.withdraw(number);
    CHECK(job.survives(killed(number), 10.5));
    CHECK(job.is_excused(number));
    const ElasticOrders orders = job.turn(10.5);
    REQUIRE(orders.start.size() == 1);
    CHECK(orders.start[0].number == number + 1);
    CHECK(orders.start[0].place == SlotPlace{"a", 1});
    CHECK(orders.lines.empty());
  }
}

TEST_CASE("elastic job: no worker waits for a new one that prepares") {
  ElasticJob job = job_of(3, 3, {{1, {}}, 600, {}, 300});
  CHECK(job.survives(killed(2), 1));
  CHECK(job.turn(1).start.at(0).number == 3);
  job.met(2, {0, 1}, 2);
  CHECK(job.turn(2).lines.size() == 1);
  CHECK(job.expects(3, 10) == Ranks{0, 1, 3});
  CHECK_FALSE(job.turn(10).invite);
  SUBCASE("the world changes meanwhile") {
    CHECK(job.survives(killed(0), 20));
    const ElasticOrders orders = job.turn(20);
    CHECK(orders.invite == Ranks{1});
    CHECK(orders.start.at(0).number == 4);
    CHECK(job.expects(4, 21) == Ranks{1, 3, 4});
    job.waits(3, 30), job.waits(4, 31);
    CHECK(job.turn(31).invite == Ranks{1, 3, 4});
  }
  SUBCASE("it dies") {
    CHECK(job.survives(killed(3), 20));
    const ElasticOrders orders = job.turn(20);
    CHECK_FALSE(orders.invite);
    CHECK(orders.tell.empty());
    CHECK(orders.start.empty());  // its slot has failed twice
    CHECK(orders.lines.at(0) ==
          "slot 2 of a has failed again: it is left alone; the worker there was killed by signal 9 (SIGKILL)");
  }
  SUBCASE("it ends well: its slot is blamed, else one would be started after the other") {
    CHECK(job.survives(finished(3), 20));
    CHECK_FALSE(job.is_finishing());
    const ElasticOrders orders = job.turn(20);
    CHECK(orders.start.empty());
    CHECK(orders.lines.at(0) ==
          "slot 2 of a has failed again: it is left alone; the worker there ended before it was ready");
  }
  SUBCASE("it is never ready") {
    CHECK(job.turn(69).lines.empty());
    CHECK(job.turn(71).lines.at(0) ==
          "worker 3 on a has prepared for 61 s since its hvd.init(); it is taken in when it gets to hvd.elastic.run");
    CHECK(job.turn(309).stop.empty());
    const ElasticOrders orders = job.turn(311);
    CHECK(orders.stop == std::vector<int>{3});
    CHECK(orders.lines.at(0) ==
          "worker 3 on a was not ready 301 s after its hvd.init() (--elastic-timeout): it is ended");
    CHECK(job.turn(312).stop.empty());
    CHECK(job.survives(killed(3), 313));
    CHECK(job.survives(killed(1), 320));
    job.met(3, {0}, 321);
    CHECK(
        job.turn(321).lines.back() ==
        "epoch 3: 2 → 1 ranks (a 1), 1.00 s after: a new worker on a was not ready in time; rank 1 on a was killed by "
        "signal 9 (SIGKILL)");
  }
  SUBCASE("the others finish") {
    CHECK(job.survives(finished(0), 20));
    CHECK(job.turn(20).stop == std::vector<int>{3});
  }
}

TEST_CASE("elastic job: a spare that waits is in the very next world") {
  ElasticJob job = job_of(2, 2, {{2, {}, false, 1}, 600, {}});
  ElasticOrders orders = job.turn(1);  // job_of() ordered the spare there
  CHECK(orders.start.empty());
  CHECK(orders.tell.empty());
  job.waits(2, 5);
  orders = job.turn(5);
  CHECK_FALSE(orders.invite);  // no rank is interrupted for it
  CHECK(orders.tell.empty());
  CHECK(job.survives(killed(1), 10));
  orders = job.turn(10);
  CHECK(orders.invite == Ranks{0, 2});
  REQUIRE(orders.promoted.size() == 1);
  CHECK(orders.promoted[0].number == 2);
  CHECK(orders.promoted[0].place == SlotPlace{"a", 1});
  CHECK(orders.start.empty());  // the next spare does not disturb the recovery
  job.met(2, {0, 2}, 10.5);
  orders = job.turn(11);
  REQUIRE(orders.start.size() == 1);
  CHECK(orders.start[0].number == 3);
  CHECK(orders.start[0].place == SlotPlace{"a", 0, true});
  REQUIRE(orders.lines.size() == 1);
  CHECK(orders.lines[0] ==
        "epoch 2: 2 → 2 ranks (a 2), 0.50 s after: rank 1 on a was killed by signal 9 (SIGKILL); 1 spare took over");
  // The job waits for a worker that still imports, as for a new worker.
  CHECK(job.survives(killed(0), 20));
  orders = job.turn(20);
  CHECK(orders.invite == Ranks{});  // two members are needed
  REQUIRE(orders.promoted.size() == 1);
  CHECK(orders.promoted[0].number == 3);
  job.waits(3, 21);
  CHECK(job.turn(21).invite == Ranks{2, 3});
  job.met(3, {2, 3}, 21);
  CHECK(job.turn(22).start.at(0).number == 4);
  CHECK(job.survives(finished(2), 30));
  orders = job.turn(30);
  CHECK(orders.dismiss == std::vector<int>{4});  // the third spare
}

TEST_CASE("elastic job: a second death during a recovery; one of who was to come in") {
  ElasticJob job = job_of(4, 4, {{1, {}}, 600, {}});
  CHECK(job.survives(killed(0), 1));
  CHECK(job.turn(1).invite == Ranks{1, 2, 3});
  CHECK(job.survives(killed(2), 1.1));
  CHECK(job.turn(1.1).invite == Ranks{1, 3});
  job.met(2, {1, 3}, 2);
  CHECK(job.turn(2).lines.size() == 1);
  job.waits(4, 3);
  CHECK_FALSE(job.turn(3).invite);  // 5 was started too, and has not come yet
  job.waits(5, 4);
  CHECK(job.turn(4).invite == Ranks{1, 3, 4, 5});
  CHECK(job.survives(killed(5), 5));
  CHECK(job.turn(5).invite == Ranks{1, 3, 4});
  CHECK(job.survives(killed(1), 6));
  CHECK(job.turn(6).invite == Ranks{3, 4});
}

TEST_CASE("elastic job: too few wait for more, and not for ever") {
  ElasticJob job = job_of(2, 2, {{2, {}}, 60, {}});
  CHECK(job.survives(killed(1), 1));
  ElasticOrders orders = job.turn(1);
  CHECK(orders.invite == Ranks{});
  CHECK(orders.start.size() == 1);
  CHECK(orders.lines.size() == 1);
  CHECK(job.turn(60).end.empty());
  SUBCASE("one comes") {
    job.waits(2, 61);
    CHECK(job.turn(61).invite == Ranks{0, 2});
  }
  SUBCASE("none comes") { CHECK_FALSE(job.turn(62).end.empty()); }
}

TEST_CASE("elastic job: it ends at once when too few slots remain and no other can come") {
  const auto fails_twice = [](ElasticJob& job) {
    CHECK(job.survives(killed(1), 1));
    CHECK(job.turn(1).end.empty());  // the slot gets another worker
    CHECK(job.survives(killed(2), 2));
    return job.turn(2);
  };
  const auto job_with = [](ElasticLimits limits, std::optional<std::pair<int, int>> pause = {}) {
    ElasticJob job(limits, {{0, {"a", 0}}, {1, {"a", 1}}}, {{"a", 2}}, SlotHistory(pause));
    job.waits(0, 0), job.waits(1, 0);
    job.met(1, {0, 1}, 0);
    return job;
  };
  ElasticLimits limits{{2, {}}, 60, {}};
  limits.hosts_may_change = false;
  SUBCASE("hosts are fixed") {
    ElasticJob job = job_with(limits);
    const ElasticOrders orders = fails_twice(job);
    CHECK(orders.end == "1 slot left, --min-np asks for 2, and no host can be added: slot 1 of a has failed twice");
    REQUIRE(orders.lines.size() == 1);  // "slot 1 of a has failed again"; nothing says that the job waits
  }
  SUBCASE("the slot only rests") {
    ElasticJob job = job_with(limits, std::pair(5, 5));
    CHECK(fails_twice(job).end.empty());
    CHECK(job.turn(8).start.size() == 1);
  }
  SUBCASE("hosts may change") {
    limits.hosts_may_change = true;
    ElasticJob job = job_with(limits);
    CHECK(fails_twice(job).end.empty());
    CHECK_FALSE(job.turn(62).end.empty());
  }
}

TEST_CASE("elastic job: who has the state does not leave for new ones that may not have got it yet") {
  ElasticJob job({{1, {}}, 600, {}}, {{0, {"a", 0}, WorkerStage::starting}}, {{"a", 1}}, SlotHistory());
  job.waits(0, 0);
  job.met(1, {0}, 0);
  job.hosts_are({{"a", 1}, {"b", 2}});
  CHECK(job.turn(1).start.size() == 2);
  job.waits(1, 2), job.waits(2, 2);
  CHECK(job.turn(2).invite == Ranks{0, 1, 2});
  job.met(2, {0, 1, 2}, 3);
  CHECK(job.survives(killed(2), 3));  // before rank 0 has given the state to 1
  job.hosts_are({{"b", 2}});
  CHECK(job.turn(3).invite == Ranks{0, 1});
  job.met(3, {0, 1}, 4);
  CHECK(job.turn(5).invite == Ranks{1});  // at the next commit
}

TEST_CASE("elastic job: a host is left where a rank has differed from the others twice") {
  ElasticJob job({{1, {}}, 600, {}}, {{0, {"a", 0}, WorkerStage::starting}, {1, {"b", 0}, WorkerStage::starting}},
                 {{"a", 1}, {"b", 2}}, SlotHistory());
  job.waits(0, 0), job.waits(1, 0);
  job.met(1, {0, 1}, 0);
  job.turn(0);
  const std::string words = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n";
  CHECK(job.survives(raised(1, words + "hvd.exceptions.DivergedAgainError: parameter w is not\n"), 5));
  const ElasticOrders orders = job.turn(5);
  CHECK(orders.start.empty());
  CHECK(orders.invite == Ranks{0});
  CHECK(orders.lines.at(0) == "the job leaves b: a rank there has had other parameters than the others twice");
  job.met(2, {0}, 6);
  job.hosts_are({{"a", 1}, {"b", 2}, {"c", 1}});  // discovery still finds the host
  const ElasticOrders later = job.turn(7);
  REQUIRE(later.start.size() == 1);
  CHECK(later.start[0].place == SlotPlace{"c", 0});
}

TEST_CASE("elastic job: what it does not survive") {
  SUBCASE("before the first world") {
    ElasticJob job({{1, {}}, 600, {}}, {{0, {"a", 0}, WorkerStage::starting}, {1, {"a", 1}, WorkerStage::starting}},
                   {{"a", 2}}, SlotHistory());
    CHECK_FALSE(job.survives(raised(1, "ImportError"), 1));
  }
  SUBCASE("the last one with the state") {
    ElasticJob job = job_of(2, 2, {{1, {}}, 600, {}});
    CHECK(job.survives(killed(0), 1));
    CHECK_FALSE(job.outlives_its_workers());
    CHECK_FALSE(job.survives(killed(1), 1));
  }
  SUBCASE("the last one with the state, while another is being dismissed") {
    ElasticJob job = job_of(2, 2, {{1, {}}, 600, {}});
    job.hosts_are({{"a", 1}});
    CHECK(job.turn(1).invite == Ranks{0});
    job.met(2, {0}, 2);
    CHECK(job.turn(2).dismiss == std::vector<int>{1});
    CHECK_FALSE(job.survives(killed(0), 3));
    const ElasticOrders orders = job.turn(3);
    REQUIRE_FALSE(orders.lines.empty());
    CHECK(orders.lines.back().starts_with("no rank with the training's state is left"));
  }
  SUBCASE("but where the state is kept elsewhere new ones go on") {
    ElasticJob job = job_of(2, 2, {{2, {}, true}, 600, {}});
    CHECK(job.survives(killed(0), 1));
    CHECK(job.survives(killed(1), 1));
    CHECK(job.outlives_its_workers());
    const ElasticOrders orders = job.turn(1);
    REQUIRE(orders.start.size() == 2);
    for (const ElasticWorker& w : orders.start) job.waits(w.number, 2);
    const ElasticOrders next = job.turn(2);
    REQUIRE(next.invite);
    CHECK(*next.invite == std::vector<std::int32_t>{orders.start[0].number, orders.start[1].number});
  }
  SUBCASE("the same traceback three times") {
    ElasticJob job = job_of(4, 4, {{1, {}}, 600, {}});
    CHECK(job.survives(raised(0, "here"), 1));
    CHECK(job.survives(raised(1, "here"), 1));
    CHECK_FALSE(job.survives(raised(2, "here"), 1));
  }
  SUBCASE("a death when others have finished") {
    ElasticJob job = job_of(2, 2, {{1, {}}, 600, {}});
    CHECK(job.survives(finished(0), 1));
    CHECK_FALSE(job.survives(killed(1), 1));
  }
}

TEST_CASE("elastic job: the reset limit") {
  ElasticJob job = job_of(3, 3, {{1, {}}, 600, 1});
  CHECK(job.survives(killed(2), 1));
  CHECK(job.turn(1).end.empty());
  job.met(2, {0, 1}, 1);
  CHECK(job.turn(1).end.empty());
  CHECK(job.survives(killed(1), 2));
  job.met(3, {0}, 2);
  CHECK_FALSE(job.turn(2).end.empty());
}

TEST_CASE("elastic job: who finishes ends it; who recovers, or begins, then has nothing to do") {
  ElasticJob job = job_of(3, 3, {{1, {}}, 600, {}});
  CHECK(job.survives(killed(2), 1));
  CHECK(job.turn(1).start.size() == 1);
  CHECK(job.survives(finished(0), 1));
  const ElasticOrders orders = job.turn(1);
  CHECK(orders.dismiss == std::vector<int>{1, 3});
  CHECK(orders.lines.empty());
  CHECK(orders.stop == std::vector<int>{3});
  CHECK(job.is_excused(2));
  CHECK(job.survives(finished(1), 2));
}

TEST_CASE("elastic job: a member that meets again when another has finished has nothing to do") {
  ElasticJob job = job_of(3, 3, {{1, {}}, 600, {}});
  CHECK(job.survives(finished(0), 1));
  CHECK(job.turn(1).dismiss.empty());
  job.waits(1, 2);
  const ElasticOrders orders = job.turn(2);
  CHECK(orders.dismiss == std::vector<int>{1});
  REQUIRE(orders.lines.size() == 1);
  CHECK(orders.lines[0].starts_with("rank 0 has finished while other ranks still trained with it; they end too"));
  job.waits(2, 3);
  CHECK(job.turn(3).lines.empty());
}

TEST_CASE("elastic job: hosts that are named and not named any more") {
  ElasticJob job = job_of(2, 2, {{1, {}}, 600, {}});
  job.hosts_are({{"a", 2}, {"b", 1}});
  const ElasticOrders begun = job.turn(1);
  CHECK(begun.start.at(0).place == SlotPlace{"b", 0});
  CHECK(begun.tell == std::vector<int>{0, 1});  // a worker will come
  CHECK(begun.change == HostChange::none);
  CHECK(job.turn(1.5).tell.empty());
  job.waits(2, 2);
  CHECK(job.turn(2).invite == Ranks{0, 1, 2});
  job.met(2, {0, 1, 2}, 3);
  job.hosts_are({{"b", 1}});
  ElasticOrders orders = job.turn(4);
  CHECK(orders.invite == Ranks{2});
  CHECK(orders.change == HostChange::removed);
  CHECK(orders.tell == std::vector<int>{0, 1, 2});
  CHECK(orders.dismiss.empty());  // they are still in the world
  job.met(3, {2}, 5);
  CHECK(job.turn(5).dismiss == std::vector<int>{0, 1});
  CHECK(job.survives(finished(0), 6));
  CHECK(job.survives(finished(1), 6));
  CHECK(job.is_excused(0));
}

TEST_CASE("elastic job: a slot that fails again shows why; with it, others of its host") {
  ElasticJob job = job_of(1, 3, {{1, {}}, 600, {}});
  const auto lost = [](int rank) {
    wire::DeathRecord d;
    d.rank = rank, d.cause = wire::Cause::vanished, d.text = "nothing listens for ssh on a";
    return d;
  };
  CHECK(job.survives(lost(1), 30));  // job_of() has started two for the free slots
  CHECK(job.survives(lost(2), 30));
  CHECK(job.turn(30).lines.empty());
  CHECK(job.survives(lost(3), 60));
  CHECK(job.turn(60).lines ==
        std::vector<std::string>{"slot 1 of a has failed again: it is left alone; the worker there "
                                 "is lost: nothing listens for ssh on a"});
  CHECK(job.survives(lost(4), 60));
  CHECK(job.turn(60).lines ==
        std::vector<std::string>{"slot 2 of a has failed again: it is left alone, for the same reason"});
  CHECK(job.ranks() == std::vector<int>{0});
}

TEST_CASE("elastic job: how long a world was broken counts from the loss, not from its discovery") {
  ElasticJob job = job_of(2, 2, {{1, {}}, 600, {}});
  CHECK(job.ranks() == std::vector<int>{0, 1});
  CHECK(job.survives(killed(1), 26, 10.5));
  CHECK(job.ranks() == std::vector<int>{0});
  job.turn(26);
  job.met(2, {0}, 26);
  CHECK(job.turn(26).lines.at(0).starts_with("epoch 2: 2 → 1 ranks (a 1), 15.50 s after: rank 1"));
}
