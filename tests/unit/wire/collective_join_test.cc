#include "wire/collectives/collective_join.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::wire;

namespace {

const CollectiveGroup whole{"0", "default", {0, 1, 2}}, pair{"1", "pair", {0, 1}};

CollectiveRecord record(std::int64_t sequence, const std::string& kind, bool ended, int group = 0,
                        const std::string& tensors = "[8] float32") {
  CollectiveRecord r;
  r.group = group;
  r.sequence = sequence;
  r.kind = kind;
  r.tensors = tensors;
  r.ended = ended;
  r.seconds = 6;
  r.place = "t.py:" + std::to_string(10 + sequence);
  return r;
}

RankCollectives told(int rank, std::vector<CollectiveRecord> last,
                     std::vector<CollectiveGroup> groups = {whole, pair}) {
  RankCollectives c;
  c.rank = rank;
  c.recorded = true;
  c.groups = std::move(groups);
  c.last = std::move(last);
  return c;
}

PresentCall call(const std::string& name, int peer, const std::string& place) { return {name, peer, place, 6, -1, -1}; }

std::string lines(const JobCollectives& job) { return join(difference_lines(collective_differences(job)), "\n"); }

}  // namespace

TEST_CASE("collectives: the first that a rank has not enqueued") {
  JobCollectives job;
  for (const int rank : {0, 2}) job[rank] = told(rank, {record(1, "broadcast", true), record(2, "all_reduce", false)});
  job[1] = told(1, {record(1, "broadcast", true)});
  const auto found = collective_differences(job);
  REQUIRE(found.size() == 1);
  CHECK(found[0].missing == std::vector<int>{1});
  CHECK(found[0].waiting == std::vector<int>{0, 2});
  CHECK(found[0].seconds == 6);
  CHECK(lines(job) ==
        "rank 1 has not enqueued all_reduce 2 of the default group ([8] float32); ranks 0,2 wait for it\n"
        "rank 1 has not enqueued it; its last was broadcast 1 of the default group ([8] float32) at t.py:11");
}

TEST_CASE("collectives: two groups of the same ranks are told apart") {
  const std::vector<CollectiveGroup> groups{whole, {"1", "undefined", {0, 1, 2}}, {"2", "undefined", {0, 1, 2}}};
  JobCollectives job;
  for (const int rank : {0, 2}) job[rank] = told(rank, {record(4, "all_reduce", false, 1)}, groups);
  job[1] = told(1, {record(4, "all_reduce", false, 2)}, groups);
  CHECK(lines(job) ==
        "rank 1 has not enqueued all_reduce 4 of group 1 of ranks 0-2 ([8] float32); ranks 0,2 wait for it\n"
        "rank 1 waits for all_reduce 4 of group 2 of ranks 0-2 ([8] float32) at t.py:14 instead\n"
        "ranks 0,2 have not enqueued all_reduce 4 of group 2 of ranks 0-2 ([8] float32); rank 1 waits for it\n"
        "ranks 0,2 wait for all_reduce 4 of group 1 of ranks 0-2 ([8] float32) at t.py:14 instead\n"
        "these ranks wait for each other");
}

TEST_CASE("collectives: nobody is to blame while all have enqueued it, or none waits") {
  JobCollectives job;
  for (const int rank : {0, 1, 2}) job[rank] = told(rank, {record(1, "all_reduce", false)});
  REQUIRE(collective_differences(job).size() == 1);
  CHECK(collective_differences(job)[0].missing.empty());
  for (auto& [rank, c] : job) c.last[0].ended = true;
  job[1].last.clear();
  CHECK(collective_differences(job).empty());
  CHECK(collective_differences({}).empty());
}

TEST_CASE("collectives: kind, shape and dtype differ under one number") {
  JobCollectives job;
  for (const int rank : {0, 1, 2}) job[rank] = told(rank, {record(4, "all_reduce", false)});
  job[2].last[0] = record(4, "broadcast", true);
  job[2].last[0].place = "u.py:3";
  auto found = collective_differences(job);
  REQUIRE(found.size() == 1);
  CHECK(found[0].fault == CollectiveFault::different);
  CHECK(found[0].missing == std::vector<int>{2});
  CHECK(found[0].what ==
        "the ranks differ at collective 4 of the default group: all_reduce ([8] float32) at t.py:14 on ranks 0-1; "
        "broadcast ([8] float32) at u.py:3 on rank 2");
  job[2].last[0] = record(4, "all_reduce", false, 0, "[9] float32");
  CHECK(collective_differences(job).size() == 1);
  for (auto& [rank, c] : job) c.last[0].kind = "alltoall_base";  // ranks may give others more or less
  CHECK(collective_differences(job).at(0).fault == CollectiveFault::queued);
}

TEST_CASE("collectives: ranks give one broadcast different sources") {
  JobCollectives job;
  for (const int rank : {0, 1, 2}) {
    job[rank] = told(rank, {record(82, "broadcast", false)});
    job[rank].last[0].root = rank == 2 ? 0 : 2;
    job[rank].last[0].at_once = true;
  }
  CHECK(lines(job) ==
        "the ranks differ at collective 82 of the default group: broadcast ([8] float32) from rank 0 at t.py:92 on "
        "rank 2; "
        "broadcast ([8] float32) from rank 2 at t.py:92 on ranks 0-1");
  job[0].last[0].root = -1;  // an asynchronous call
  CHECK(collective_differences(job).at(0).missing.empty());
  CHECK(collective_differences(job)[0].fault == CollectiveFault::different);
  for (auto& [rank, c] : job) c.last[0].kind = "reduce";
  CHECK(lines(job).find("reduce ([8] float32) to rank 0 at t.py:92 on rank 2") != std::string::npos);
}

TEST_CASE("collectives: all have enqueued one, and none is through") {
  JobCollectives job;
  for (const int rank : {0, 1, 2}) {
    job[rank] = told(rank, {record(3, "broadcast", false)});
    job[rank].last[0].at_once = true;
    job[rank].last[0].seconds = 9 - rank;
  }
  const auto found = collective_differences(job);
  REQUIRE(found.size() == 1);
  CHECK(found[0].fault == CollectiveFault::stuck);
  CHECK(found[0].seconds == 7);
  CHECK(lines(job) ==
        "ranks 0-2 wait for broadcast 3 of the default group ([8] float32), and all have enqueued it\n"
        "ranks 0-2 are at t.py:13\n"
        "different sources (src=) on the ranks look like this");
  for (auto& [rank, c] : job) c.last[0].root = 1;
  CHECK(lines(job).find("different") == std::string::npos);
  SUBCASE("another rank waits for them elsewhere") {
    job[3] = told(3, {record(1, "all_reduce", false, 0)}, {{"2", "all", {0, 1, 2, 3}}});
    for (const int rank : {0, 1, 2}) job[rank].groups.push_back({"2", "all", {0, 1, 2, 3}});
    CHECK(collective_differences(job).size() == 1);
    CHECK(collective_differences(job)[0].fault == CollectiveFault::stuck);
  }
  SUBCASE("one is through") {
    job[1].last[0].ended = true;
    CHECK(collective_differences(job).empty());
  }
  SUBCASE("it may not have begun, behind a stream's work") {
    job[1].last[0].at_once = false;
    REQUIRE(collective_differences(job).size() == 1);
    CHECK(collective_differences(job)[0].fault == CollectiveFault::queued);
    CHECK(lines(job).find("their GPUs still compute, or the exchange does not end") != std::string::npos);
  }
}

TEST_CASE("collectives: an older collective differs, and the ranks are elsewhere now") {
  JobCollectives job;
  for (const int rank : {0, 1}) {
    job[rank] = told(rank, {record(6, rank ? "barrier" : "all_reduce", false), record(7, "all_reduce", false)});
    job[rank].last[0].place.clear();
  }
  CHECK(lines(job) ==
        "the ranks differ at collective 6 of the default group: all_reduce ([8] float32) on rank 0; barrier ([8] "
        "float32) on rank 1\n"
        "ranks 0-1 are now at t.py:17");
}

TEST_CASE("collectives: a message that was posted in advance is no wait") {
  JobCollectives job;
  const std::vector<CollectiveGroup> pair{{"0", "default", {0, 1}}};
  job[0] = told(0, {record(6, "all_reduce", false)}, pair);
  job[1] = told(1, {record(1, "send 1->0", false)}, pair);
  job[1].last[0].point_to_point = true;
  REQUIRE(collective_differences(job).size() == 1);
  CHECK(collective_differences(job)[0].missing == std::vector<int>{1});
  CHECK(collective_differences(job)[0].fault == CollectiveFault::missing);
}

TEST_CASE("collectives: calls in two groups in another order, without records") {
  JobCollectives job;
  const std::vector<CollectiveGroup> groups{{"0", "default", {0, 1, 2}}, {"1", "a", {0, 1}}, {"2", "b", {0, 1}}};
  for (const int rank : {0, 1, 2}) job[rank] = told(rank, {}, groups);
  job[0].call = {"all_reduce", -1, "t.py:4", 5, 1, -1};
  SUBCASE("both wait") {
    job[1].call = {"all_reduce", -1, "t.py:4", 5, 2, -1};
    CHECK(lines(job) ==
          "rank 1 has not enqueued all_reduce of group a; rank 0 waits for it\n"
          "rank 1 is in all_reduce of group b at t.py:4 instead\n"
          "rank 0 has not enqueued all_reduce of group b; rank 1 waits for it\n"
          "rank 0 is in all_reduce of group a at t.py:4 instead\n"
          "these ranks wait for each other");
  }
  SUBCASE("one does not come; the third is no member") {
    REQUIRE(collective_differences(job).size() == 1);
    CHECK(collective_differences(job)[0].missing == std::vector<int>{1});
  }
  SUBCASE("both are in it") {
    job[1].call = job[0].call;
    CHECK(collective_differences(job).empty());
  }
}

TEST_CASE("collectives: a rank that waits itself is not the cause") {
  JobCollectives job;
  job[0] = told(0, {record(1, "all_reduce", false, 1)});
  job[1] = told(1, {record(1, "barrier", false, 0, "")});
  job[2] = told(2, {});
  const auto found = collective_differences(job);  // 0 waits for 1, 1 waits for 2 and 0
  REQUIRE(found.size() == 1);
  CHECK(found[0].what == "barrier 1 of the default group");
  CHECK(found[0].missing == std::vector<int>{2});
  CHECK(found[0].details.size() == 2);
}

TEST_CASE("collectives: two groups in another order") {
  JobCollectives job;
  const std::vector<CollectiveGroup> groups{{"0", "default", {0, 1}}, {"1", "a", {0, 1}}, {"2", "b", {0, 1}}};
  job[0] = told(0, {record(1, "all_reduce", false, 1)}, groups);
  job[1] = told(1, {record(1, "all_reduce", false, 2)}, groups);
  CHECK(collective_differences(job).size() == 2);
  CHECK(lines(job).find("these ranks wait for each other") != std::string::npos);
  CHECK(lines(job).find("rank 1 waits for all_reduce 1 of group b ([8] float32) at t.py:11 instead") !=
        std::string::npos);
}

TEST_CASE("collectives: a rank that does not answer is missing; torch's ranks may be numbered otherwise") {
  JobCollectives job;
  job[0] = told(2, {record(1, "all_reduce", false)});
  job[1] = told(0, {record(1, "all_reduce", false)});
  const auto found = collective_differences(job);  // torch's rank 1 has not answered; hvdrun calls it 2
  job[2] = {};                                     // the guard of rank 2 has no answer
  CHECK(lines(job).find("\nrank 2 has not answered") != std::string::npos);
  CHECK(collectives_text(job[2], 5) == "  has not answered what it does in torch.distributed\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0].missing.size() == 1);
  CHECK(found[0].waiting == std::vector<int>{0, 1});
}

TEST_CASE("collectives: where a rank skipped one, its lines differ from then on") {
  JobCollectives job;
  for (const int rank : {0, 1}) {
    job[rank] = told(rank, {}, {{"0", "default", {0, 1}}});
    for (int n = 1; n <= 6 - rank; ++n) job[rank].last.push_back(record(n, "all_reduce", n < 6));
  }
  for (CollectiveRecord& r : job[1].last)
    if (r.sequence >= 3) r.place = "t.py:" + std::to_string(11 + r.sequence);
  CHECK(lines(job).find("their lines differ from collective 3 on: rank 0 at t.py:13, rank 1 at t.py:14") !=
        std::string::npos);
}

TEST_CASE("collectives: a message does not arrive, though both ranks are in its call") {
  JobCollectives job;
  for (const int rank : {0, 1, 2}) job[rank] = told(rank, {});
  job[0].call = call("send", 1, "t.py:3");
  job[1].call = call("recv", 0, "t.py:7");
  job[1].call->seconds = 5;
  const auto found = collective_differences(job);
  REQUIRE(found.size() == 1);
  CHECK(found[0].missing.empty());
  CHECK(found[0].waiting == std::vector<int>{0, 1});
  CHECK(found[0].seconds == 5);
  CHECK(lines(job) ==
        "a message does not arrive: send to rank 1 at t.py:3 on rank 0; recv from rank 0 at t.py:7 on rank 1\n"
        "their groups or sizes may differ");
  job[0].call->tag = 100;
  job[1].call->tag = 101;
  CHECK(lines(job) ==
        "a message does not arrive: send to rank 1 (tag 100) at t.py:3 on rank 0; recv from rank 0 (tag 101) at t.py:7 "
        "on rank 1\n"
        "their tags (tag=) differ");
  job[2].call = call("recv", 1, "t.py:9");  // rank 1 would send to it later
  CHECK(lines(job).find("a message does not arrive: send to rank 1") == 0);
  CHECK(lines(job).find("rank 2") == std::string::npos);
  job[1].call->peer = 2;  // it waits for another message
  CHECK(lines(job).find("does not arrive") == std::string::npos);
  job[1].call.reset();
  CHECK(lines(job).find("does not arrive") == std::string::npos);
}

TEST_CASE("collectives: between two ranks, by what their main threads call") {
  JobCollectives job;
  for (const int rank : {0, 1}) job[rank] = told(rank, {});
  job[0].call = call("recv", 1, "t.py:3");
  CHECK(lines(job) == "rank 1 has not enqueued recv from rank 1; rank 0 waits for it");  // what else it did is unknown
  job[1].call = call("recv", 0, "t.py:4");
  CHECK(lines(job).find("these ranks wait for each other") != std::string::npos);
  job[0].call = job[1].call = call("new_group", -1, "t.py:9");
  CHECK(lines(job).empty());
}

TEST_CASE("collectives: what a rank tells goes to JSON and back; nonsense is refused") {
  RankCollectives c = told(1, {record(1, "all_reduce", false), record(1, "broadcast", true, 1)});
  c.init = GroupStart{1, 2, "10.0.0.1", 29500, 3, "it does not answer", "t.py:2"};
  c.call = call("recv", 0, "a\x1b[2J");
  c.call->tag = 7;
  const RankCollectives back = rank_collectives_from_json(to_json(c));
  CHECK(back.last.size() == 2);
  CHECK(back.last[1].ended);
  CHECK(back.groups[1].ranks == std::vector<int>{0, 1});
  CHECK(back.init->refused == "it does not answer");
  CHECK(back.init->place == "t.py:2");
  CHECK(back.call->place == "a?[2J");
  CHECK(back.call->tag == 7);
  for (const char* bad : {"{}", "[]", "", R"({"whole":1})",
                          R"({"whole":true,"rank":0,"pid":1,"torch":"","groups":[],"records":[[0,1,"","",0,1,""]]})"})
    CHECK_THROWS_AS(rank_collectives_from_json(bad), Error);
}
