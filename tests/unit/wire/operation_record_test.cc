#include "wire/collectives/operation_record.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "hvd/hvd.h"

using namespace hvd::wire;

namespace {

OperationRecord operation(std::int64_t sequence, const std::string& name, bool ended, int kind = HVD_ALLREDUCE,
                          std::int64_t bytes = 400) {
  OperationRecord o;
  o.sequence = sequence;
  o.name = name;
  o.kind = kind;
  o.dtype = HVD_F32;
  o.bytes = bytes;
  o.submit_ns = 1000 + sequence;
  if (ended) o.begin_ns = o.end_ns = 2000 + sequence;
  return o;
}

RankOperations of(std::vector<OperationRecord> last) {
  const auto submitted = static_cast<std::int64_t>(last.size());
  return {"node1", 5'000'000'000, submitted, std::move(last)};
}

}  // namespace

TEST_CASE("operations: a rank that has not submitted what others wait for") {
  JobOperations ranks;
  for (int r = 0; r < 4; ++r) ranks[r] = of({operation(0, "a", true), operation(1, "b", false)});
  ranks[2] = of({operation(0, "a", true)});
  CHECK(!difference_between(ranks).branches);
  CHECK(difference_between(ranks).lines ==
        std::vector<std::string>{"the ranks differ at operation 1: allreduce b (400 B float32) on ranks 0-1,3",
                                 "rank 2 has not submitted it; its last was allreduce a (400 B float32)"});
}

TEST_CASE("operations: a rank that has submitted another one, in another branch of the program") {
  JobOperations ranks;
  ranks[0] = of({operation(0, "a", true), operation(1, "b", false)});
  ranks[1] = of({operation(0, "a", true), operation(1, "c", false, HVD_BARRIER)});
  ranks[2] = of({});
  CHECK(difference_between(ranks).branches);
  const auto lines = difference_between(ranks).lines;
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "the ranks differ at operation 1: allreduce b (400 B float32) on rank 0");
  CHECK(lines[1] == "rank 1 has submitted barrier c instead");
  CHECK(lines[2] == "rank 2 has submitted nothing");
}

TEST_CASE("operations: the same name for different tensors; allgather may have sizes of its own") {
  JobOperations ranks;
  ranks[0] = of({operation(0, "x", false, HVD_ALLGATHER, 4), operation(1, "a", false)});
  ranks[1] = of({operation(0, "x", false, HVD_ALLGATHER, 8), operation(1, "a", false, HVD_ALLREDUCE, 800)});
  CHECK(difference_between(ranks).branches);
  const auto lines = difference_between(ranks).lines;
  REQUIRE(lines.size() == 1);
  CHECK(
      lines[0] ==
      "the ranks differ at operation 1: allreduce a (400 B float32) on rank 0; allreduce a (800 B float32) on rank 1");
}

TEST_CASE("operations: no difference in what all have submitted, in sets that a rank is not in, in an earlier world") {
  JobOperations ranks;
  OperationRecord moving = operation(3, "b", false), old = operation(1, "old", false), own = operation(0, "s", true);
  moving.begin_ns = 5;
  moving.epoch = 1;
  own.set = 2;
  own.epoch = 1;
  ranks[0] = of({old, own, moving});
  ranks[1] = of({operation(3, "b", true)});
  CHECK(difference_between(ranks).lines.empty());
  CHECK(difference_between({}).lines.empty());
}

TEST_CASE("operations: a file of them, and back") {
  JobOperations ranks;
  ranks[0] = of({operation(7,
                           "gr\xff"
                           "ad\n\"",
                           true)});
  ranks[11] = of({operation(8, "b", false, HVD_JOIN)});
  const JobOperations read = operations_of_file(operations_file(ranks));
  REQUIRE(read.size() == 2);
  CHECK(read.at(11).last.at(0).kind == HVD_JOIN);
  CHECK(read.at(0).last.at(0).end_ns == 2007);
  CHECK(read.at(0).host == "node1");
  CHECK(operations_file(read) == operations_file(operations_of_file(operations_file(read))));
  for (const char* bad : {"", "hvdrun operations 2\n", "hvdrun operations 1\nx {}", "hvdrun operations 1\n0 {}",
                          "hvdrun operations 1\n0"})
    CHECK_THROWS_AS(operations_of_file(bad), hvd::Error);
}

TEST_CASE("operations: in words") {
  JobOperations ranks;
  ranks[3] = of({operation(0, "a", true), operation(1, "b", false)});
  CHECK(operations_text(ranks, 8) ==
        "rank 3 on node1: 2 operations submitted, 1 under way\n"
        "  ended 5.000 s ago after 0.000 s: #0 allreduce a (400 B float32)\n"
        "  waits for other ranks for 5.000 s: #1 allreduce b (400 B float32)\n");
  ranks[3] = of({operation(0, "a", true)});
  ranks[3].gpu = "still computes a, without progress for 6.0 s";
  CHECK(operations_text(operations_of_file(operations_file(ranks)), 8) ==
        "rank 3 on node1: 1 operations submitted, 0 under way\n"
        "  ended 5.000 s ago after 0.000 s: #0 allreduce a (400 B float32)\n"
        "  its GPU still computes a, without progress for 6.0 s\n");
}
