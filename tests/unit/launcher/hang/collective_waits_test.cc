#include "launcher/hang/collective_waits.h"

#include <doctest/doctest.h>

using namespace hvd;
using namespace hvd::launcher;

namespace {

wire::CollectiveWait waits(const std::string& what, double seconds) { return {std::nullopt, what, seconds}; }

wire::CollectiveWait starts(int rank, int world, const std::string& address = "a", const std::string& refused = "") {
  wire::CollectiveWait wait;
  wait.init = wire::GroupStart{rank, world, address, 29500, 0, refused, "t.py:8"};
  return wait;
}

wire::JobCollectives job_where_rank_1_is_missing(double seconds, double gap = 0) {
  wire::JobCollectives job;
  for (const int rank : {0, 1}) {
    job[rank].rank = rank;
    job[rank].groups = {{"0", "default", {0, 1}}};
  }
  job[0].longest_gap_seconds = gap;
  job[0].last = {{0, 1, "all_reduce", "[8] float32", false, false, seconds, "t.py:1", -1, false}};
  return job;
}

}  // namespace

TEST_CASE("collective waits: ranks are asked when a wait is long, again while it lasts, and not without one") {
  CollectiveWaits w(5);
  CHECK(!w.must_ask(100));
  w.take(0, waits("all_reduce", 2), 100);
  CHECK(!w.is_quiet());
  CHECK(!w.must_ask(101));
  CHECK(w.must_ask(102));
  CHECK(!w.must_ask(103));  // no answer yet
  w.answered(job_where_rank_1_is_missing(5), 103);
  CHECK(!w.must_ask(103.5));
  CHECK(w.must_ask(104));
  REQUIRE(w.incidents(103.5, 2).size() == 1);
  const Incident i = w.incidents(103.5, 2)[0];
  CHECK(i.missing == std::vector<int>{1});
  CHECK(i.since == 98);
  CHECK(i.tensor == "all_reduce 1 of the default group ([8] float32)");
  w.take(0, waits("", 0), 105);
  CHECK(w.incidents(105, 2).empty());
  CHECK(w.is_quiet());
}

TEST_CASE("collective waits: a rank whose call of init_process_group() cannot succeed is missing") {
  CollectiveWaits w(5);
  w.take(0, waits("all_reduce", 5), 100);
  w.take(1, starts(1, 3), 100);
  w.answered(job_where_rank_1_is_missing(5), 100);
  REQUIRE(w.incidents(100, 2).size() == 1);
  const std::vector<std::string> details = w.incidents(100, 2)[0].details;
  REQUIRE(!details.empty());
  CHECK(details.back() == "WORLD_SIZE is 3, but the job has 2 ranks");
}

TEST_CASE("collective waits: an answer that comes after the end of the wait tells nothing") {
  CollectiveWaits w(5);
  w.take(0, waits("all_reduce", 4), 100);
  CHECK(w.must_ask(100));
  w.take(0, waits("", 0), 101);
  w.answered(job_where_rank_1_is_missing(5), 101.5);
  CHECK(w.incidents(120, 2).empty());
  w.take(0, waits("all_reduce", 2), 130);  // another one
  CHECK(w.incidents(130, 2).empty());
}

TEST_CASE("collective waits: a rank that was asked in the middle of a short collective does not wait") {
  CollectiveWaits w(1);
  CHECK(!w.must_ask(100));  // no rank waits, even if the patience is as short as the time for answers
  w.take(2, waits("all_gather", 40), 100);
  CHECK(w.must_ask(100));
  w.answered(job_where_rank_1_is_missing(0.1), 100);
  CHECK(w.incidents(109, 3).empty());
}

TEST_CASE("collective waits: a job whose collectives are far apart gets more patience") {
  CollectiveWaits w(5);
  w.take(0, waits("all_reduce", 6), 100);
  w.answered(job_where_rank_1_is_missing(6, 8), 100);
  CHECK(w.incidents(100, 2).empty());
  CHECK(w.incidents(110.5, 2).size() == 1);
}

TEST_CASE("collective waits: a collective that all have enqueued may still move data") {
  CollectiveWaits w(5);
  wire::JobCollectives job = job_where_rank_1_is_missing(6);
  job[0].last[0].at_once = true;
  job[1].last = job[0].last;
  w.take(0, waits("all_reduce", 6), 100);
  w.answered(job, 100);
  CHECK(w.incidents(101, 2).empty());
  REQUIRE(w.incidents(102, 2).size() == 1);
  CHECK(w.incidents(102, 2)[0].kind == IncidentKind::stuck);
  CHECK(w.incidents(102, 2)[0].missing.empty());
  CHECK(w.incidents(102, 2)[0].waiting == 2);
  job[1].last[0].at_once = false;  // it may be behind other work of a GPU
  w.answered(job, 100);
  CHECK(w.incidents(113.9, 2).empty());
  CHECK(w.incidents(114, 2).size() == 1);
}

TEST_CASE("collective waits: in an elastic job only ranks that have answered are missing") {
  CollectiveWaits w(5, true);
  w.take(0, waits("all_reduce", 6), 100);
  w.take(1, starts(1, 2), 80);
  wire::JobCollectives job = job_where_rank_1_is_missing(6);
  w.answered(job, 100);
  CHECK(w.incidents(100, 2).size() == 1);
  job.erase(1);
  w.answered(job, 102);
  CHECK(w.incidents(120, 2).empty());  // also nothing about init_process_group()
}

TEST_CASE("collective waits: who has not come to init_process_group()") {
  CollectiveWaits w(5);
  w.take(0, starts(0, 3), 100);
  w.take(2, starts(2, 3), 101);
  CHECK(w.incidents(108, 3).empty());
  const auto found = w.incidents(109.5, 3);
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == IncidentKind::init);
  CHECK(found[0].missing == std::vector<int>{1});
  CHECK(found[0].waiting == 2);
  CHECK(found[0].details == std::vector<std::string>{"ranks 0,2 are at t.py:8"});
  w.take(1, starts(1, 3), 110);
  CHECK(w.incidents(120, 3).empty());
  for (const int rank : {0, 1, 2}) w.take(rank, waits("", 0), 121);
  CHECK(w.incidents(200, 3).empty());
}

TEST_CASE("collective waits: calls of init_process_group() that cannot fit together") {
  using Lines = std::vector<std::string>;
  const auto faults = [](std::vector<wire::CollectiveWait> ranks, int size) {
    std::map<int, wire::GroupStart> all;
    for (std::size_t r = 0; r < ranks.size(); ++r) all[static_cast<int>(r)] = *ranks[r].init;
    return start_faults(all, size);
  };
  CHECK(faults({starts(0, 2), starts(1, 2)}, 2).empty());
  CHECK(faults({starts(0, 2)}, 2).empty());
  CHECK(faults({starts(0, 2), starts(1, 3)}, 2) == Lines{"WORLD_SIZE is 2 on rank 0, 3 on rank 1"});
  CHECK(faults({starts(0, 3), starts(1, 3)}, 2) == Lines{"WORLD_SIZE is 3, but the job has 2 ranks"});
  CHECK(faults({starts(1, 2), starts(1, 2)}, 2) ==
        Lines{"none of them has RANK 0, which serves the store", "ranks 0-1 all have RANK 1"});
  CHECK(faults({starts(0, 2), starts(1, 2, "b", "it does not answer")}, 2) ==
        Lines{"MASTER_ADDR:MASTER_PORT is a:29500 on rank 0, b:29500 on rank 1",
              "rank 1 cannot connect to b:29500: it does not answer"});
}
