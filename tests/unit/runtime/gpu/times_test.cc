/// The timeline's times of tensors on GPUs: each phase has the device's times, on the host's clock, and no thread waits
/// for them.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <map>
#include <vector>

#include "../../trace/collect.h"
#include "gpu_operations.h"
#include "recorder/steps/ticks.h"

using namespace hvd;
using namespace hvd::testing;
using trace::Phase;

namespace {

struct Spans : test::Lines {
  struct Span {
    Phase phase;
    std::int64_t begin_ns, end_ns;
  };
  struct Row {
    std::int64_t begin_ns = 0, end_ns = 0;
    std::vector<Span> spans;
  };
  std::map<std::uint32_t, Row> rows;

  void on_batch_begin(std::uint32_t row, std::int64_t ns) override { rows[row].begin_ns = ns; }
  void on_phase_begin(std::uint32_t row, Phase phase, std::int64_t ns) override {
    rows[row].spans.push_back({phase, ns, 0});
  }
  void on_phase_end(std::uint32_t row, Phase phase, std::int64_t ns) override {
    for (Span& s : rows[row].spans)
      if (s.phase == phase && s.end_ns == 0) s.end_ns = ns;
  }
  void on_batch_end(std::uint32_t row, std::int64_t ns) override { rows[row].end_ns = ns; }
};

constexpr std::int64_t slack_ns = 300'000;  // two clocks, read one after the other

/// Two ranks, three groups of tensors that arrive late. Returns the number of the six rows that show this for at least
/// half that time. (A fake GPU is a thread, which may be late itself.)
int rows_that_waited() {
  constexpr int late_us = 20000;
  std::atomic<int> waited{0};
  auto check = [&](Rank& rank) {
    GpuRank gpu(rank);
    test::MemorySink::Store store;
    std::vector<std::array<std::int64_t, 2>> lives;  // [groups] when it was submitted, and its results were seen
    rank.engine().tracer().start(std::make_unique<test::MemorySink>(store), false);
    for (int round = 0; round < 3; ++round) {
      const auto at = trace::monotonic_ns();
      std::vector<hvd_request> qs;
      const std::vector<float> ones(1000, 1);
      for (const char* name : {"a", "b"}) {
        void* t = gpu.tensor(ones.data(), 4000, late_us);
        qs.push_back(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name, {1000}, t, t)));
      }
      for (core::Operation* op : rank.submit_group(qs)) {
        gpu.arrive(*op);
        gpu.release(*op);
      }
      lives.push_back({at, trace::monotonic_ns()});
    }
    rank.engine().stop_timeline();
    Spans got;
    trace::TraceDecoder decoder(got);
    for (const auto& frame : store.frames) EXPECT(decoder.feed(frame));
    std::vector<Spans::Row> rows;
    for (const auto& [number, row] : got.rows) rows.push_back(row);
    EXPECT(rows.size() == 3);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Spans::Row& row = rows[i];
      std::vector<Phase> phases;
      for (const Spans::Span& s : row.spans) phases.push_back(s.phase);
      std::vector<Phase> expected{Phase::queue,         Phase::init_nccl,
                                  Phase::wait_for_data, Phase::memcpy_in_fusion_buffer,
                                  Phase::nccl,          Phase::memcpy_out_fusion_buffer};
      if (i > 0) expected.erase(expected.begin() + 1);  // the first one only
      EXPECT(phases == expected);
      EXPECT(row.begin_ns >= lives[i][0] - slack_ns);
      EXPECT(row.end_ns != 0 && row.end_ns <= lives[i][1] + slack_ns);
      std::int64_t last = row.begin_ns;
      for (const Spans::Span& s : row.spans) {
        EXPECT(s.begin_ns >= last - slack_ns && s.end_ns >= s.begin_ns && s.end_ns <= row.end_ns + slack_ns);
        last = s.begin_ns;
      }
      const Spans::Span& wait = row.spans[phases.size() - 4];
      waited += wait.end_ns - wait.begin_ns >= late_us * 500;
    }
  };
  run_world(2, 2, check);
  return waited;
}

}  // namespace

TEST_CASE("the timeline has the device's phases, when they were") {
  int waited = 0;
  for (int attempt = 0; attempt < 20 && waited < 6; ++attempt) waited = rows_that_waited();
  CHECK(waited == 6);
}

TEST_CASE("what a GPU has begun and not ended is in the timeline as begun") {
  run_world(1, 1, [](Rank& rank) {
    GpuRank gpu(rank);
    test::MemorySink::Store store;
    rank.engine().tracer().start(std::make_unique<test::MemorySink>(store), false);
    const float one = 1;
    void* t = gpu.tensor(&one, 4, 100000);
    core::Operation& op = rank.submit(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, "slow", {1}, t, t)));
    EXPECT(rank.engine().wait(op, 120));
    rank.engine().stop_timeline();
    const bool under_way = !op.arrived();
    Spans got;
    trace::TraceDecoder decoder(got);
    for (const auto& frame : store.frames) EXPECT(decoder.feed(frame));
    EXPECT(got.rows.size() == 1);
    EXPECT(got.rows.begin()->second.begin_ns > 0);
    EXPECT(!under_way || got.rows.begin()->second.end_ns == 0);
    gpu.arrive(op);
    gpu.release(op);
  });
}
