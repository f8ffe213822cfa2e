#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "collect.h"
#include "recorder/steps/ticks.h"
#include "recorder/trace/trace_ring.h"
#include "recorder/trace/trace_window.h"

using namespace hvd;
using namespace hvd::trace;
using test::Lines;
using test::MemorySink;

namespace {

const std::int64_t shape[] = {100, 3};
const TraceTensor tensor_a{"a", TraceOp::allreduce, 7, shape, 0};

void decode(const MemorySink::Store& store, Lines& lines) {
  trace::TraceDecoder decoder(lines);
  for (const auto& frame : store.frames) REQUIRE_MESSAGE(decoder.feed(frame), decoder.error());
}

void one_operation(Tracer& tracer, Track& track, std::uint32_t batch) {
  tracer.submitted(track, tensor_a);
  tracer.cycle();
  tracer.batch_begin(batch);
  tracer.batch_tensor(track);
  tracer.phase_begin(batch, Phase::shm);
  tracer.phase_end(batch, Phase::shm);
  tracer.batch_end(batch);
}

}  // namespace

TEST_CASE("tracer: off, nothing is recorded") {
  Tracer tracer;
  Track track;
  one_operation(tracer, track, 1);
  CHECK(track.id == 0);
  CHECK_FALSE(tracer.enabled());
  tracer.stop();
}

TEST_CASE("tracer: one operation comes out in order, with times of now") {
  MemorySink::Store store;
  const std::int64_t before = trace::monotonic_ns();
  {
    Tracer tracer;
    tracer.start(std::make_unique<MemorySink>(store), true);
    Track track;
    one_operation(tracer, track, 5);
    tracer.failed(track);
  }
  const std::int64_t after = trace::monotonic_ns();
  CHECK(store.closed);
  Lines got;
  decode(store, got);
  const std::vector<std::string> expected{"track 1 a", "submitted 1",   "cycle", "begin 5", "tensor 1",
                                          "phase 5 9", "phase end 5 9", "end 5", "failed 1"};
  CHECK(got.lines == expected);
  REQUIRE(got.tracks.size() == 1);
  CHECK(got.tracks[0].shape == std::vector<std::uint64_t>{100, 3});
  CHECK(got.tracks[0].dtype == 7);
  CHECK(std::is_sorted(got.times.begin(), got.times.end()));
  CHECK(got.times.front() >= before - 2000);
  CHECK(got.times.back() <= after + 2000);
}

TEST_CASE("tracer: what a device did is told late, in the host's time, and disturbs nothing else") {
  MemorySink::Store store;
  const std::int64_t before = trace::monotonic_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::int64_t late = 0;
  {
    Tracer tracer;
    tracer.start(std::make_unique<MemorySink>(store), false);
    const std::int64_t begun = trace::monotonic_ns();
    Track track;
    tracer.submitted(track, {"a", trace::TraceOp::allreduce, 7, {}, 0});
    tracer.batch_begin(5);
    tracer.batch_tensor(track);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    tracer.batch_begin(6);
    late = trace::monotonic_ns();
    const DevicePhase phases[] = {{trace::Phase::wait_for_data, begun + 1'000'000, begun + 3'000'000},
                                  {trace::Phase::nccl, begun + 3'000'000, begun + 7'000'000}};
    tracer.ran(5, phases, begun + 8'000'000);
    tracer.batch_end(6);
    tracer.ran(7, {}, before);  // long before recording began
  }
  Lines got;
  decode(store, got);
  const std::vector<std::string> expected{"track 1 a",     "submitted 1", "begin 5",       "tensor 1",
                                          "begin 6",       "phase 5 1",   "phase end 5 1", "phase 5 8",
                                          "phase end 5 8", "end 5",       "end 6",         "end 7"};
  REQUIRE(got.lines == expected);
  const std::int64_t* t = &got.times[3];  // of the first phase; 2: of begin 6
  CHECK(std::abs(t[1] - t[0] - 2'000'000) < 400'000);
  CHECK(std::abs(t[2] - t[1]) < 400'000);
  CHECK(std::abs(t[3] - t[2] - 4'000'000) < 400'000);
  CHECK(std::abs(t[4] - t[3] - 1'000'000) < 400'000);
  CHECK(t[4] < late);
  CHECK(t[5] >= got.times[2]);
}

TEST_CASE("tracer: cycles are marked only when asked") {
  MemorySink::Store store;
  {
    Tracer tracer;
    tracer.start(std::make_unique<MemorySink>(store), false);
    Track track;
    one_operation(tracer, track, 5);
  }
  Lines got;
  decode(store, got);
  CHECK(std::count(got.lines.begin(), got.lines.end(), "cycle") == 0);
}

TEST_CASE("tracer: a second start tells the names again and begins anew") {
  Tracer tracer;
  Track track;
  for (int round = 0; round < 3; ++round) {
    MemorySink::Store store;
    tracer.start(std::make_unique<MemorySink>(store), false);
    one_operation(tracer, track, 1);
    tracer.stop();
    Lines got;
    decode(store, got);
    CHECK(got.lines.size() == 7);
    CHECK(got.lines[0] == "track 1 a");
    CHECK(got.lines[6] == "end 1");
    one_operation(tracer, track, 2);  // off: left out
  }
}

TEST_CASE("tracer: another tracer may go on in the same place") {
  MemorySink::Store store;
  for (const char* name : {"a", "b"}) {
    Tracer tracer;
    tracer.start(std::make_unique<MemorySink>(store), false);
    Track track;
    tracer.submitted(track, {name, TraceOp::allreduce, 7, shape, 0});
  }
  Lines got;
  decode(store, got);
  CHECK(got.starts == 2);
  CHECK(got.lines == std::vector<std::string>{"track 1 a", "submitted 1", "track 1 b", "submitted 1"});
}

TEST_CASE("tracer: a full ring drops, counts, and goes on") {
  MemorySink::Store store;
  Tracer tracer(Tracer::Options{1024, 60'000});
  tracer.start(std::make_unique<MemorySink>(store), false);
  Track track;
  for (int i = 0; i < 200'000; ++i) tracer.submitted(track, tensor_a);
  CHECK(tracer.lost() > 0);
  std::uint64_t made = 200'000;
  for (std::uint64_t before = 0;
       before != tracer.lost() && made < 210'000;) {  // until there is room for the count of lost records
    before = tracer.lost();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    tracer.submitted(track, tensor_a);
    ++made;
  }
  tracer.stop();
  Lines got;
  decode(store, got);
  CHECK(got.lost + (got.lines.size() - 1) == made);
  CHECK(std::is_sorted(got.times.begin(), got.times.end()));
}

TEST_CASE("tracer: many threads, more than have rings of their own") {
  MemorySink::Store store;
  constexpr int threads = 80, each = 500;
  {
    Tracer tracer(Tracer::Options{1u << 20, 5});
    tracer.start(std::make_unique<MemorySink>(store), false);
    std::vector<std::thread> pool;
    std::atomic<int> ready{0};
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        Track track;
        const std::string name = "t" + std::to_string(t);
        ready.fetch_add(1);
        while (ready.load() < threads) std::this_thread::yield();
        for (int i = 0; i < each; ++i) tracer.submitted(track, {name, TraceOp::allreduce, 7, {}, 0});
      });
    for (std::thread& thread : pool) thread.join();
    CHECK(tracer.lost() == 0);
  }
  Lines got;
  decode(store, got);
  CHECK(got.tracks.size() == threads);
  CHECK(got.lines.size() == threads * (each + 1));
}

TEST_CASE("tracer: the engine's batch is never ahead of the submission it holds") {
  MemorySink::Store store;
  {
    Tracer tracer(Tracer::Options{1u << 20, 1});
    tracer.start(std::make_unique<MemorySink>(store), false);
    std::atomic<int> submitted{0}, done{0};
    Track track;
    std::thread engine([&] {
      for (int i = 1; i <= 20'000; ++i) {
        while (submitted.load(std::memory_order_acquire) < i) std::this_thread::yield();
        tracer.batch_begin(static_cast<std::uint32_t>(i));
        tracer.batch_tensor(track);
        tracer.batch_end(static_cast<std::uint32_t>(i));
        done.store(i, std::memory_order_release);
      }
    });
    for (int i = 1; i <= 20'000; ++i) {
      tracer.submitted(track, tensor_a);
      submitted.store(i, std::memory_order_release);
      while (done.load(std::memory_order_acquire) < i) std::this_thread::yield();
    }
    engine.join();
  }
  Lines got;
  decode(store, got);
  std::int64_t waiting = 0, least = 0;
  for (const std::string& line : got.lines) {
    if (line == "submitted 1") ++waiting;
    if (line == "tensor 1") least = std::min(least, --waiting);
  }
  CHECK(waiting == 0);
  CHECK(least == 0);
}

TEST_CASE("tracer: after silence the writer sleeps, and a record wakes it") {
  MemorySink::Store store;
  Tracer tracer(Tracer::Options{1u << 16, 2});
  tracer.start(std::make_unique<MemorySink>(store), false);
  Track track;
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    std::size_t before = 0;
    {
      const std::lock_guard lock(store.mutex);
      before = store.frames.size();
    }
    tracer.submitted(track, tensor_a);
    bool came = false;
    for (int i = 0; i < 20'000 && !came; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(store.mutex);
      came = store.frames.size() > before;
    }
    CHECK(came);
  }
}

TEST_CASE("tracer: a sink that is gone turns recording off") {
  struct Gone : Sink {
    bool write(std::span<const std::uint8_t>) override { return false; }
  };
  Tracer tracer(Tracer::Options{1u << 16, 2});
  for (int round = 0; round < 200; ++round) {  // the writer may find the error before start() has returned
    tracer.start(std::make_unique<Gone>(), false);
    for (int i = 0; i < 20'000 && tracer.enabled(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE_FALSE(tracer.enabled());
    tracer.stop();
  }
}

TEST_CASE("ring: records stay whole where the ring wraps") {
  TraceRing ring(1024, 3);
  std::uint64_t written = 0, read = 0;
  for (int round = 0; round < 5000; ++round) {
    if (std::uint8_t* to = ring.reserve()) {
      const int bytes = 1 + round % 60;
      for (int i = 0; i < bytes; ++i) *to++ = static_cast<std::uint8_t>(bytes);
      ring.commit(to);
      ++written;
    }
    if (round % 7 != 0) continue;
    const std::uint64_t head = ring.head();
    while (ring.tail() != head) {
      const auto bytes = ring.readable(head);
      for (std::size_t i = 0; i < bytes.size();) {
        if (bytes[i] == 0) {
          ++i;
          continue;
        }
        for (std::size_t k = 0; k < bytes[i]; ++k) REQUIRE(bytes[i + k] == bytes[i]);
        i += bytes[i];
        ++read;
      }
      ring.consume(bytes.size());
    }
  }
  CHECK(written - read < 40);
  CHECK(ring.lost() == 5000 - written);
}

TEST_CASE("settings: what the environment says") {
  const auto with = [](const char* path, const char* cycles, const char* collect, const char* fd) {
    const auto set = [](const char* name, const char* value) { value ? setenv(name, value, 1) : unsetenv(name); };
    set("HOROVOD_TIMELINE", path);
    set("HOROVOD_TIMELINE_MARK_CYCLES", cycles);
    set("HVD_TIMELINE_COLLECT", collect);
    set("HVD_LINK_FD", fd);
    return settings_from_environment();
  };
  CHECK(with(nullptr, nullptr, nullptr, nullptr).start == TraceSettings::Start::off);
  CHECK(with("DYNAMIC", "1", nullptr, nullptr).start == TraceSettings::Start::later);
  CHECK(with("DYNAMIC", "1", nullptr, nullptr).mark_cycles);
  CHECK(with("t.json", "off", nullptr, "5").path == "t.json");
  CHECK_FALSE(with("t.json", "off", nullptr, "5").collected);
  CHECK(with("t.json", nullptr, "1", "5").collected);
  CHECK_THROWS_AS(with("t.json", "maybe", nullptr, nullptr), Error);
  with(nullptr, nullptr, nullptr, nullptr);
}

TEST_CASE("rank_path: one file for each rank") {
  CHECK(rank_path("a/t.json", 0, 1) == "a/t.json");
  CHECK(rank_path("a/t.json", 3, 4) == "a/t.rank3.json");
  CHECK(rank_path("a.d/trace", 3, 4) == "a.d/trace.rank3");
  CHECK(rank_path("/x/.hidden", 1, 2) == "/x/.hidden.rank1");
  CHECK(rank_path("a/t.json", 0, 4) == "a/t.json");
}

TEST_CASE("tracer: steps and their parts") {
  MemorySink::Store store;
  {
    Tracer tracer;
    tracer.start(std::make_unique<MemorySink>(store), false);
    tracer.part(TracedPart::input, true);
    tracer.part(TracedPart::input, false);
    tracer.step(1);
    tracer.part(TracedPart::save, true);
    tracer.step(-2);
  }
  Lines got;
  decode(store, got);
  CHECK(got.lines == std::vector<std::string>{"begin input", "end input", "step 1", "begin checkpoint", "step -2"});
}

TEST_CASE("timeline's steps: what may be written for them") {
  CHECK(trace_steps("100-200")->first == 100);
  CHECK(trace_steps("100-200")->last == 200);
  CHECK(trace_steps("7")->contains(7));
  CHECK_FALSE(trace_steps("7")->contains(8));
  CHECK(trace_steps("7-")->contains(INT64_MAX));
  for (const char* wrong : {"", "-", "0", "-3", "3-2", "1-2-3", "a", "1 - 2", "9999999999999999999999", "0-5"}) {
    CAPTURE(wrong);
    CHECK_FALSE(trace_steps(wrong));
  }
}

TEST_CASE("timeline's steps: recorded are those of the option, or what hvdrun has asked for") {
  MemorySink::Store store;
  const auto memory = std::make_unique<wire::RecorderMemory>();
  memory->trace = 0;
  Tracer tracer;
  int starts = 0;
  const auto steps = [&](TraceWindow& window, std::int64_t from, std::int64_t to) {
    std::string recorded;
    for (std::int64_t step = from; step <= to; ++step) {
      recorded += tracer.enabled() ? '1' : '0';
      window.step_ended(step);
    }
    return recorded;
  };
  const auto start = [&] {
    ++starts;
    tracer.start(std::make_unique<MemorySink>(store), false);
  };
  SUBCASE("all") {
    TraceWindow window(tracer, {}, memory.get(), start);
    window.begin(true);
    CHECK(steps(window, 1, 4) == "1111");
  }
  SUBCASE("none, until hvdrun asks; and again") {
    TraceWindow window(tracer, {}, memory.get(), start);
    window.begin(false);
    CHECK(steps(window, 1, 3) == "000");
    memory->trace = wire::trace_on;
    CHECK(steps(window, 4, 6) == "011");
    memory->trace = wire::trace_off;
    CHECK(steps(window, 7, 9) == "100");
    memory->trace = wire::trace_on;
    CHECK(steps(window, 10, 12) == "011");
    CHECK(starts == 2);
  }
  SUBCASE("some") {
    TraceWindow window(tracer, TraceSteps{3, 5}, nullptr, start);
    window.begin(true);
    CHECK(steps(window, 1, 8) == "00111000");
    tracer.stop();
    Lines got;
    decode(store, got);
    CHECK(got.lines == std::vector<std::string>{"step 2", "step 3", "step 4", "step -5"});
    CHECK(store.closed);
  }
  SUBCASE("the first ones") {
    TraceWindow window(tracer, TraceSteps{1, 2}, nullptr, start);
    window.begin(true);
    CHECK(steps(window, 1, 4) == "1100");
  }
  SUBCASE("a file that cannot be made disturbs no step") {
    TraceWindow window(tracer, TraceSteps{2, 2}, nullptr, [] { throw Error(Code::usage, "t", "no"); });
    window.begin(true);
    CHECK(steps(window, 1, 4) == "0000");
  }
}

TEST_CASE("tracer: started and stopped soon by turns, by one thread, while others record and stop") {
  Tracer tracer({.ring_bytes = 1 << 14, .flush_ms = 1});
  std::atomic<bool> done{false};
  std::thread records([&] {
    Track track;
    for (std::uint32_t batch = 1; !done; ++batch) one_operation(tracer, track, batch);
  });
  std::thread stops([&] {
    while (!done) {
      tracer.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<std::unique_ptr<MemorySink::Store>> stores;
  for (int i = 0; i < 100; ++i) {
    stores.push_back(std::make_unique<MemorySink::Store>());
    tracer.start(std::make_unique<MemorySink>(*stores.back()), false);
    tracer.step(i);
    tracer.stop_soon();
  }
  done = true;
  records.join();
  stops.join();
  tracer.stop();
  for (const auto& store : stores) {
    Lines got;
    decode(*store, got);
  }
}
