#include "recorder/steps/step_recorder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

using hvd::recorder::StepPart;
using hvd::recorder::StepRecorder;
using hvd::wire::RecorderMemory;
using hvd::wire::StepRecord;

namespace {

constexpr std::int64_t ms = 1'000'000;

void pass(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// The memory as the guard makes it.
class GuardMemory {
 public:
  GuardMemory() : fd(memfd_create("recorder", MFD_ALLOW_SEALING)) {
    REQUIRE(ftruncate(fd, hvd::wire::recorder_bytes) == 0);
    REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    void* at = mmap(nullptr, hvd::wire::recorder_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(at != MAP_FAILED);
    memory = static_cast<RecorderMemory*>(at);
    memory->mark = hvd::wire::recorder_mark;
  }
  GuardMemory(const GuardMemory&) = delete;
  GuardMemory& operator=(const GuardMemory&) = delete;
  ~GuardMemory() {
    munmap(memory, hvd::wire::recorder_bytes);
    close(fd);
  }
  std::vector<StepRecord> steps() const {
    std::vector<StepRecord> all;
    for (std::uint64_t i = 0; i < memory->steps.written(); ++i)
      if (const auto step = memory->steps.get(i)) all.push_back(*step);
    return all;
  }

  int fd;
  RecorderMemory* memory = nullptr;
};

/// Keeps this thread, and threads that it starts, on one core.
class OneCore {
 public:
  OneCore() {
    REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

/// At least @p least, and not much more, with an allowance for a busy machine.  There a thread may lose its core for a
/// while at any line.  So checks compare the parts of a step, rather than one part with a small limit.
bool about(std::int64_t ns, std::int64_t least_ms) { return ns >= least_ms * ms && ns < (least_ms + 20000) * ms; }

}  // namespace

TEST_CASE("step recorder: time counts for the innermost part, and parts are no longer than the step") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  r.begin_epoch(3);
  pass(30);  // before the first batch is requested: of no step
  r.begin(StepPart::input);
  pass(20);
  r.begin(StepPart::collect);
  pass(10);
  r.end(StepPart::collect);
  r.end(StepPart::input);
  r.begin(StepPart::save);
  r.begin(StepPart::waiting);
  pass(15);
  r.moves(true, hvd::trace::monotonic_ns());
  pass(25);
  r.moves(false, hvd::trace::monotonic_ns());
  r.end(StepPart::waiting);
  r.end(StepPart::save);
  r.submitted(3, 4096);
  r.step_ended();
  REQUIRE(guard.steps().size() == 1);
  const StepRecord s = guard.steps().front();
  CHECK(s.number == 1);
  CHECK(s.epoch == hvd::wire::record_epoch(3, true));
  CHECK(about(s.input_ns, 20));
  CHECK(about(s.collect_ns, 10));
  CHECK(s.save_ns <= s.step_ns - 70 * ms);
  CHECK(about(s.waited_ns, 15));
  CHECK(about(s.moved_ns, 25));
  CHECK(about(s.step_ns, 70));
  CHECK(s.input_ns + s.collect_ns + s.save_ns + s.waited_ns + s.moved_ns <= s.step_ns);
  CHECK(s.operations == 3);
  CHECK(s.operation_bytes == 4096);
  CHECK(s.resident_bytes > 1 << 20);
}

TEST_CASE("step recorder: other threads do not train, until one of them ends a step") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  std::thread([&] {
    r.begin(StepPart::input);
    pass(20);
    r.end(StepPart::input);
  }).join();
  r.step_ended();
  CHECK(guard.steps().back().input_ns == 0);
  std::thread([&] {
    pass(12);  // shorter steps would share a record
    r.step_ended();
    r.begin(StepPart::input);
    pass(20);
    r.end(StepPart::input);
    r.step_ended();
  }).join();
  CHECK(about(guard.steps().back().input_ns, 20));
}

TEST_CASE("step recorder: a batch that another thread fetches is input, but not more than the trainer's own time") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  r.begin(StepPart::waiting);
  std::thread([&] {
    r.fetch_begins(hvd::wire::Loader::tensorflow);
    pass(20);
    r.fetch_ended();
    r.fetch_ended();  // one too many
  }).join();
  r.end(StepPart::waiting);
  r.step_ended();
  const StepRecord first = guard.steps().back();
  CHECK(first.waited_ns >= 20 * ms);
  CHECK(first.input_ns <= first.step_ns - first.waited_ns);
  std::thread([&] {
    r.fetch_begins(hvd::wire::Loader::tensorflow);  // the batch never came: the data had ended
    pass(20);
    r.fetch_begins(hvd::wire::Loader::tensorflow);
    pass(30);
    r.fetch_ended();
  }).join();
  r.step_ended();
  CHECK(about(guard.steps().back().input_ns, 30));
}

TEST_CASE("step recorder: an operation does not move data while the engine's thread has no core") {
  const OneCore one;
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      if (i == 0) r.engine_runs();
      while (!over) {}
    });
  for (int step = 0; step < 3; ++step) {  // the first one shows that cores are short
    r.begin(StepPart::waiting);
    r.moves(true, hvd::trace::monotonic_ns());
    pass(200);
    r.moves(false, hvd::trace::monotonic_ns());
    r.end(StepPart::waiting);
    r.step_ended();
  }
  over = true;
  for (std::thread& t : threads) t.join();
  const StepRecord s = guard.steps().back();
  CHECK(s.operation_delay_ns > 100 * ms);
  CHECK(s.run_delay_ns >= s.operation_delay_ns);
  CHECK(s.waited_ns + s.moved_ns + s.operation_delay_ns <= s.step_ns + ms);
}

TEST_CASE("step recorder: a rank that waits for others lacks no core, though its threads take turns on one") {
  const OneCore one;
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  std::atomic<bool> over{false};
  std::thread engine([&] {
    r.engine_runs();
    while (!over) sched_yield();
  });
  for (int step = 0; step < 3; ++step) {
    r.begin(StepPart::waiting);
    for (const std::int64_t end = hvd::trace::monotonic_ns() + 100 * ms; hvd::trace::monotonic_ns() < end;)
      sched_yield();
    r.end(StepPart::waiting);
    r.step_ended();
  }
  over = true;
  engine.join();
  const StepRecord s = guard.steps().back();
  CHECK(s.waited_ns >= 100 * ms);
  CHECK(s.operation_delay_ns == 0);
  const std::int64_t others_ran_ns = s.step_ns - s.cpu_ns;  // other processes, on the same core
  CHECK(s.run_delay_ns < s.step_ns / 4 + others_ran_ns);
}

TEST_CASE("step recorder: an end that was left out, and one too many, do no harm") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  r.end(StepPart::save);
  for (int i = 0; i < 20; ++i) r.begin(StepPart::input);
  r.begin(StepPart::save);
  for (int i = 0; i < 20; ++i) r.end(StepPart::input);
  pass(10);
  r.step_ended();
  CHECK(guard.steps().back().input_ns <= guard.steps().back().step_ns - 10 * ms);
}

TEST_CASE("step recorder: rounds are steps until the program tells of steps itself") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  r.round_ended(2);  // the time before is no step
  CHECK(guard.steps().empty());
  pass(15);
  r.round_ended(3);
  pass(15);
  r.step_ended();
  pass(15);
  r.round_ended(5);
  r.round_ended(9);
  r.step_ended();
  const auto steps = guard.steps();
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].number == 3);
  CHECK_FALSE(hvd::wire::is_told(steps[0].epoch));
  for (std::size_t i = 1; i < 3; ++i) {  // ranks may have seen different numbers of rounds
    CHECK(steps[i].number == static_cast<std::int64_t>(i));
    CHECK(hvd::wire::is_told(steps[i].epoch));
    CHECK(steps[i].epoch > steps[0].epoch);
  }
  CHECK(about(steps[2].step_ns, 15));
}

TEST_CASE("step recorder: what callbacks tell of is waiting, in each step its part") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  pass(12);
  r.step_ended();
  pass(10);
  r.asked();
  r.asked();
  pass(20);
  r.step_ended();
  r.moves(true, hvd::trace::monotonic_ns());
  pass(20);
  r.told();
  std::thread([&] { r.told(); }).join();
  r.told();  // of another world
  r.moves(false, hvd::trace::monotonic_ns());
  pass(20);
  r.step_ended();
  const auto steps = guard.steps();
  REQUIRE(steps.size() == 3);
  CHECK(about(steps[1].waited_ns, 20));
  CHECK(steps[1].moved_ns == 0);
  CHECK(steps[1].step_ns - steps[1].waited_ns >= 10 * ms);
  CHECK(about(steps[2].moved_ns, 20));
  CHECK(steps[2].step_ns - steps[2].moved_ns - steps[2].waited_ns >= 20 * ms);
}

TEST_CASE("step recorder: short steps share a record, and its number is a multiple of how many") {
  const GuardMemory guard;
  const std::int64_t begun = hvd::trace::monotonic_ns();
  {
    StepRecorder r(guard.fd);
    for (int i = 0; i < 100000; ++i) {
      r.submitted(1, 8);
      r.step_ended();
    }
  }
  std::int64_t before = 0, operations = 0;
  for (const StepRecord& s : guard.steps()) {
    const std::int64_t covered = s.number - before;
    CHECK(covered == s.operations);
    before = s.number;
    operations += s.operations;
  }
  CHECK(static_cast<std::int64_t>(guard.steps().size()) < 200 + (hvd::trace::monotonic_ns() - begun) / (10 * ms));
  CHECK(before == 100000);
  CHECK(operations == 100000);
}

TEST_CASE("step recorder: another world counts from 1 again, in the same memory") {
  const GuardMemory guard;
  for (const std::int64_t epoch : {0, 5}) {
    StepRecorder r(guard.fd);
    r.begin_epoch(epoch);
    r.step_ended();
    pass(1);
  }
  REQUIRE(guard.steps().size() == 2);
  CHECK(guard.steps()[1].number == 1);
  CHECK(guard.steps()[1].epoch == hvd::wire::record_epoch(5, true));
}

TEST_CASE("step recorder: without a guard nothing is counted") {
  for (const int fd : {-1, 0}) {
    StepRecorder r(fd);
    r.begin_epoch(1);
    r.begin(StepPart::input);
    r.end(StepPart::input);
    r.moves(true, hvd::trace::monotonic_ns());
    r.asked();
    r.told();
    r.step_ended();
    r.round_ended(4);
    CHECK(r.memory() == nullptr);
    CHECK(r.live_report().empty());
  }
}

/// Counts the reports that it gets.
struct Counting : hvd::recorder::StepListener {
  void step_ended(std::int64_t number) override { last = number; }
  void part(StepPart, bool) override { ++parts; }
  std::int64_t last = 0;
  int parts = 0;
};

TEST_CASE("step recorder: without a guard a listener hears of steps and parts, and nothing more once it has left") {
  StepRecorder r(-1);
  Counting listener;
  r.follow(&listener);
  r.begin_epoch(1);
  r.begin(StepPart::input);
  r.end(StepPart::input);
  r.step_ended();
  CHECK(listener.last == 1);
  CHECK(listener.parts == 2);
  r.follow(nullptr);
  r.begin(StepPart::input);
  r.end(StepPart::input);
  r.step_ended();
  CHECK(listener.last == 1);
  CHECK(listener.parts == 2);
  CHECK(r.memory() == nullptr);
}

TEST_CASE("recorder memory: a reader sees whole records only") {
  const GuardMemory guard;
  auto& ring = guard.memory->steps;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::int64_t n = 1; n <= 200000; ++n) {
      StepRecord s;
      s.number = s.epoch = s.step_ns = s.cpu_ns = s.resident_bytes = n;
      ring.put(s);
    }
    over = true;
  });
  std::int64_t seen = 0;
  while (!over) {
    const std::uint64_t written = ring.written();
    const std::uint64_t back = static_cast<std::uint64_t>(seen) % ring.size;
    if (written <= back) continue;
    if (const auto s = ring.get(written - 1 - back)) {
      CHECK(s->number == static_cast<std::int64_t>(written - back));
      CHECK((s->epoch == s->number && s->step_ns == s->number && s->cpu_ns == s->number &&
             s->resident_bytes == s->number));
    }
    ++seen;
  }
  writer.join();
  CHECK(seen > 0);
  CHECK(!ring.get(0));  // overwritten
}

TEST_CASE("step recorder: links are told by turns, each from where it was told before") {
  const GuardMemory guard;
  StepRecorder r(guard.fd);
  r.begin_epoch(0);
  const auto told = [&](std::vector<StepRecorder::LinkCounts> so_far) {
    r.links(so_far);
    pass(25);  // steps that are shorter share a record
    r.step_ended();
    const StepRecord s = guard.steps().back();
    return std::vector<std::int64_t>{s.link_peer, s.link_bytes, s.link_busy_ns};
  };
  using Told = std::vector<std::int64_t>;
  CHECK(told({{1, 100, 10}, {2, 50, 5}}) == Told{1, 100, 10});
  CHECK(told({{1, 300, 30}, {2, 60, 7}}) == Told{2, 60, 7});
  CHECK(told({{1, 500, 40}, {2, 70, 8}}) == Told{1, 400, 30});
  CHECK(told({{1, 500, 40}, {2, 70, 8}}) == Told{2, 10, 1});
  CHECK(told({{1, 500, 40}, {2, 70, 8}}) == Told{-1, 0, 0});
  CHECK(told({{1, 20, 4}, {2, 70, 8}}) == Told{-1, 0, 0});  // its connections were made again
  CHECK(told({{1, 30, 6}, {2, 70, 8}}) == Told{1, 10, 2});
}
