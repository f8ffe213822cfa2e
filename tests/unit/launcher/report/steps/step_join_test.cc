#include "launcher/report/steps/step_join.h"

#include <doctest/doctest.h>

#include <random>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {
namespace {

wire::StepRecord told(std::int64_t number, std::int64_t epoch = 0) {
  return {.number = number, .epoch = epoch, .step_ns = 1000, .operations = 1};
}

TEST_CASE("step join: a step is whole when all have told of it") {
  StepJoin join;
  join.expect(2);
  join.add(0, {told(1), told(2)});
  CHECK_FALSE(join.next(0));
  join.add(1, {told(1)});
  const auto first = join.next(0);
  REQUIRE(first);
  CHECK(first->number == 1);
  CHECK(first->steps == 1);
  CHECK(first->parts.size() == 2);
  CHECK_FALSE(join.next(0));
  const auto left = join.next_left();
  REQUIRE(left);
  CHECK(left->number == 2);
  CHECK(left->parts.size() == 1);
  CHECK_FALSE(join.next_left());
}

TEST_CASE("step join: records that sum up several steps are brought to one length") {
  StepJoin join;
  join.expect(2);
  for (int n = 1; n <= 8; ++n) join.add(0, {told(n)});
  join.add(1, {told(4), told(8)});
  for (const int end : {4, 8}) {
    const auto step = join.next(0);
    REQUIRE(step);
    CHECK(step->number == end);
    CHECK(step->steps == 4);
    CHECK(step->parts[0].record.step_ns == 4000);
    CHECK(step->parts[1].record.step_ns == 1000);
  }
}

TEST_CASE("step join: who tells nothing for long is left out, and comes back") {
  StepJoin join;
  join.expect(3);
  for (int rank : {0, 1, 2}) join.add(rank, {told(1)});
  CHECK(join.next(0)->parts.size() == 3);
  for (int rank : {0, 1}) join.add(rank, {told(2), told(3)});
  CHECK_FALSE(join.next(1));
  CHECK_FALSE(join.next(1 + StepJoin::longest_wait_seconds / 2));
  CHECK(join.next(2 + StepJoin::longest_wait_seconds)->parts.size() == 2);
  CHECK(join.next(2 + StepJoin::longest_wait_seconds)->number == 3);
  for (int rank : {0, 1, 2}) join.add(rank, {told(4)});
  const auto step = join.next(20);
  REQUIRE(step);
  CHECK(step->number == 4);
  CHECK(step->parts.size() == 3);
}

TEST_CASE("step join: of a short job, a rank that ends first does not end the others' part") {
  StepJoin join;
  join.expect(2);
  join.add(0, {told(1), told(2)});
  join.leave(0);
  CHECK_FALSE(join.next(0));  // rank 1 has not reported yet
  join.add(1, {told(1), told(2)});
  join.leave(1);
  CHECK(join.next(0)->parts.size() == 2);
  CHECK(join.next(0)->parts.size() == 2);
}

TEST_CASE("step join: a rank that never tells does not hold up the others; one that has left is not waited for") {
  StepJoin join;
  join.expect(3);
  join.add(0, {told(1)});
  join.add(1, {told(1)});
  CHECK_FALSE(join.next(0));
  CHECK(join.next(StepJoin::longest_wait_seconds + 1));
  join.add(0, {told(2)});
  join.leave(1);
  CHECK(join.next(StepJoin::longest_wait_seconds + 1)->number == 2);
}

TEST_CASE("step join: an epoch that broke off does not mix with the next") {
  StepJoin join;
  join.expect(2);
  join.add(0, {told(1), told(2), told(1, 1)});
  join.add(1, {told(1), told(1, 1)});
  CHECK(join.next(0)->number == 1);
  const auto step = join.next(0);
  REQUIRE(step);
  CHECK(step->epoch == 1);
  CHECK(step->number == 1);
  CHECK(step->steps == 1);
  CHECK(step->parts[0].record.step_ns == 1000);
  CHECK_FALSE(join.next_left());
}

TEST_CASE("step join: any order of arrival gives the same steps") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 5), steps = 64;
    StepJoin join;
    join.expect(static_cast<std::size_t>(ranks));
    std::vector<int> at(static_cast<std::size_t>(ranks), 0), fold;
    for (int r = 0; r < ranks; ++r) fold.push_back(1 << random() % 4);
    std::int64_t seen = 0, sum = 0;
    const auto look = [&](const std::optional<JoinedStep>& step) {
      if (!step) return false;
      CHECK(step->parts.size() == static_cast<std::size_t>(ranks));
      CHECK(step->number > seen);
      CHECK(step->steps == step->number - seen);
      seen = step->number;
      sum += step->steps;
      return true;
    };
    for (int open = ranks; open > 0;) {
      const auto r = static_cast<std::size_t>(random()) % static_cast<std::size_t>(ranks);
      if (at[r] == steps) continue;
      std::vector<wire::StepRecord> block;
      for (auto n = 1 + random() % 4; n > 0 && at[r] < steps; --n) block.push_back(told(at[r] += fold[r]));
      open -= at[r] == steps;
      join.add(static_cast<int>(r), block);
      while (look(join.next(0))) {}
    }
    while (look(join.next_left())) {}
    CHECK(sum == steps);
  }
}

TEST_CASE("warm-up: the first step never counts, the next ones where they are long") {
  const auto step = [](std::int64_t n, std::int64_t ns) {
    JoinedStep s{0, n, 1, {{0, told(n)}}};
    s.parts[0].record.step_ns = ns;
    return s;
  };
  WarmUp warm;
  std::size_t counted = 0;
  for (int n = 1; n <= 20; ++n) counted += warm.pass(step(n, n <= 3 ? 5000 : 1000)).size();
  CHECK(counted == 17);
  CHECK(warm.left_out() == 3);
  WarmUp brief;
  CHECK(brief.pass(step(1, 1000)).empty());
  CHECK(brief.rest().size() == 1);
}

TEST_CASE("memory: growth is told where it goes on, not where it has ended") {
  MemoryCourse grows, settles, even;
  for (int s = 0; s < 5000; ++s) {
    grows.add(s, 1'000'000'000 + s * 100'000LL);
    settles.add(s, 1'000'000'000 + std::min(s, 2000) * 100'000LL);
    even.add(s, 1'000'000'000);
  }
  REQUIRE(grows.growth());
  CHECK(grows.growth()->bytes_per_step == doctest::Approx(100'000));
  CHECK_FALSE(settles.growth());
  CHECK_FALSE(even.growth());
}

}  // namespace
}  // namespace hvd::launcher
