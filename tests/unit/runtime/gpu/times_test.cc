/// The timeline's times of tensors on GPUs: each phase has the device's times, on the host's clock, and no thread waits
/// for them.
#include <doctest/doctest.h>

#include <algorithm>
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

constexpr std::size_t rounds = 3, ranks = 2;
using Right = std::array<std::atomic<bool>, rounds * ranks>;

/// Returns whether a row has all phases of a late group, in order, and waited for data for at least half of @p late_us.
/// @p life: the times in ns at which the group was submitted and its results had arrived.
bool is_right(const Spans::Row& row, bool is_first, const std::array<std::int64_t, 2>& life, int late_us) {
  std::vector<Phase> expected{Phase::queue,         Phase::init_nccl,
                              Phase::wait_for_data, Phase::memcpy_in_fusion_buffer,
                              Phase::nccl,          Phase::memcpy_out_fusion_buffer};
  if (!is_first) expected.erase(expected.begin() + 1);
  std::vector<Phase> phases;
  for (const Spans::Span& s : row.spans) phases.push_back(s.phase);
  EXPECT(phases == expected);
  bool right = row.begin_ns >= life[0] - slack_ns && row.end_ns != 0 && row.end_ns <= life[1] + slack_ns;
  std::int64_t last = row.begin_ns;
  for (const Spans::Span& s : row.spans) {
    // The engine may record the end of its phase after the device has begun.  timeline_rank.cc cuts that phase.
    const bool is_of_engine = s.phase == Phase::queue || s.phase == Phase::init_nccl;
    right = right && s.begin_ns >= last - slack_ns && s.end_ns >= s.begin_ns;
    right = right && (is_of_engine || s.end_ns <= row.end_ns + slack_ns);
    last = s.begin_ns;
  }
  const Spans::Span& wait = row.spans[phases.size() - 4];
  return right && wait.end_ns - wait.begin_ns >= late_us * 500;
}

/// Two ranks, three groups of tensors that arrive late.  Notes the rows that are right.
void note_right_rows(Right& right) {
  constexpr int late_us = 20000;
  run_world(ranks, ranks, [&](Rank& rank) {
    GpuRank gpu(rank);
    test::MemorySink::Store store;
    std::vector<std::array<std::int64_t, 2>> lives;
    rank.engine().tracer().start(std::make_unique<test::MemorySink>(store), false);
    for (std::size_t round = 0; round < rounds; ++round) {
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
    EXPECT(got.rows.size() == rounds);
    std::size_t i = 0;
    for (const auto& [number, row] : got.rows) {
      if (is_right(row, i == 0, lives[i], late_us)) right[static_cast<std::size_t>(rank.rank()) * rounds + i] = true;
      ++i;
    }
  });
}

}  // namespace

/// A fake GPU is a thread, and a loaded machine delays it, or the host's own thread.  So each row has several attempts.
TEST_CASE("the timeline has the device's phases, when they were") {
  Right right{};
  const auto all = [&] { return std::all_of(right.begin(), right.end(), [](const auto& one) { return one.load(); }); };
  for (int attempt = 0; attempt < 40 && !all(); ++attempt) note_right_rows(right);
  CHECK(all());
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
