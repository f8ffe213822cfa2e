#include "launcher/verdict/disagreeing_calls.h"

#include <doctest/doctest.h>

#include <csignal>

#include "base/text.h"
#include "launcher/verdict/verdict.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::Cause;

namespace {

const std::string mismatch =
    "barrier 'c10d/world #3': ranks disagree on operation: barrier on rank 0, allreduce on rank 1";

wire::DeathRecord caller(int rank, Cause cause, const std::string& function, int line) {
  wire::DeathRecord d;
  d.rank = rank, d.host = "h" + std::to_string(rank), d.cause = cause, d.time_ns = 10 + rank;
  d.code = cause == Cause::stopped ? 128 + SIGTERM : cause == Cause::exited ? 1 : 0;
  d.mismatched_call = wire::MismatchedCall{mismatch, function, {"/home/u/train.py", line, "step"}};
  if (cause == Cause::exited)
    d.traceback = "Traceback (most recent call last):\nhvd.exceptions.HorovodInternalError: " + mismatch + "\n";
  return d;
}

std::string lines_told(const wire::DeathRecord& first, const std::vector<wire::DeathRecord>& deaths) {
  return join(lines_of(disagreeing_calls(first, deaths)), "\n");
}

}  // namespace

TEST_CASE("a disagreement: each call once, with its ranks, also those that hvdrun has stopped") {
  const std::vector<wire::DeathRecord> deaths{caller(2, Cause::stopped, "torch.distributed.all_reduce", 12),
                                              caller(0, Cause::exited, "torch.distributed.barrier", 8),
                                              caller(1, Cause::exited, "torch.distributed.all_reduce", 12),
                                              caller(3, Cause::finished, "", 4)};
  CHECK(lines_told(deaths[1], deaths) ==
        "rank 0 called torch.distributed.barrier at train.py:8 (step)\n"
        "ranks 1-2 called torch.distributed.all_reduce at train.py:12 (step)\n"
        "rank 3 was at train.py:4 (step)");
  const Verdict v = judge(deaths, 4, {});
  REQUIRE(v.calls.size() == 3);
  REQUIRE(v.lines.size() == 5);
  CHECK(
      v.lines[0].starts_with("hvdrun: rank 0 on h0 ended with exit code 1 (hvd.exceptions.HorovodInternalError: barr"));
  CHECK(v.lines[1] == "        rank 0 called torch.distributed.barrier at train.py:8 (step)");
}

TEST_CASE("a disagreement that the rank has handled is not its end") {
  wire::DeathRecord later = caller(0, Cause::exited, "torch.distributed.barrier", 8);
  later.traceback = "Traceback (most recent call last):\nValueError: another\n";
  CHECK_FALSE(ended_by_disagreement(later));
  CHECK(disagreeing_calls(later, {later, caller(1, Cause::stopped, "torch.distributed.all_reduce", 12)}).empty());
  wire::DeathRecord killed = caller(0, Cause::exited, "torch.distributed.barrier", 8);
  killed.cause = Cause::signalled;
  CHECK_FALSE(ended_by_disagreement(killed));
}

TEST_CASE("an earlier disagreement of another rank is not listed, and many calls are counted") {
  const wire::DeathRecord first = caller(0, Cause::exited, "hvd.allreduce", 8);
  wire::DeathRecord earlier = caller(1, Cause::stopped, "hvd.broadcast", 9);
  earlier.mismatched_call->error = "another";
  CHECK(lines_told(first, {first, earlier}) == "rank 0 called hvd.allreduce at train.py:8 (step)");
  std::vector<wire::DeathRecord> many;
  for (int rank = 0; rank < 6; ++rank) many.push_back(caller(rank, Cause::exited, "hvd.allreduce", 10 + rank));
  CHECK(lines_told(many[0], many)
            .ends_with("rank 3 called hvd.allreduce at train.py:13 (step)\nand 2 more calls elsewhere"));
}
