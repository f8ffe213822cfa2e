#include <doctest/doctest.h>

#include <random>

#include "collect.h"
#include "trace/timeline.h"

using namespace hvd;
using test::Lines;

namespace {

/// The frames of a small real recording.
test::Frames recording() {
  test::MemorySink::Store store;
  trace::Tracer tracer;
  tracer.start(std::make_unique<test::MemorySink>(store), true);
  const std::int64_t shape[] = {1, 2, 3};
  for (std::uint32_t batch = 0; batch < 20; ++batch) {
    trace::Track tracks[5];
    for (int i = 0; i < 5; ++i)
      tracer.submitted(tracks[i], {"layer." + std::to_string(i), trace::TraceOp::allreduce, 7, shape, 0});
    tracer.batch_begin(batch);
    for (const trace::Track track : tracks) tracer.batch_tensor(track);
    tracer.phase_begin(batch, trace::Phase::mpi);
    tracer.phase_end(batch, trace::Phase::mpi);
    tracer.batch_end(batch);
    tracer.cycle();
  }
  tracer.stop();
  return store.frames;
}

std::vector<std::uint8_t> section(std::uint16_t stream, const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> body{trace::trace_version, 0, static_cast<std::uint8_t>(stream),
                                 static_cast<std::uint8_t>(stream >> 8)};
  for (int i = 0; i < 4; ++i) body.push_back(static_cast<std::uint8_t>(bytes.size() >> (8 * i)));
  body.insert(body.end(), bytes.begin(), bytes.end());
  return body;
}

}  // namespace

TEST_CASE("varint: what goes in comes out") {
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{63}, std::int64_t{-64},
                                   std::int64_t{1} << 40, INT64_MIN, INT64_MAX})
    CHECK(trace::unzigzag(trace::zigzag(value)) == value);
}

TEST_CASE("decoder: sections may be cut anywhere") {
  const test::Frames frames = recording();
  Lines whole;
  trace::TraceDecoder decoder(whole);
  for (const auto& frame : frames) REQUIRE(decoder.feed(frame));
  for (const std::size_t step : {1u, 2u, 3u, 7u, 64u}) {
    Lines cut;
    trace::TraceDecoder other(cut);
    for (const auto& frame : frames) {
      for (std::size_t at = 2; at < frame.size();) {
        const auto stream = static_cast<std::uint16_t>(frame[at] | frame[at + 1] << 8);
        const std::size_t bytes = frame[at + 2] | std::size_t{frame[at + 3]} << 8;
        at += trace::trace_section_header_bytes;
        for (std::size_t i = 0; i < bytes; i += step) {
          const auto* from = frame.data() + at + i;
          REQUIRE(other.feed(section(stream, {from, from + std::min(step, bytes - i)})));
        }
        at += bytes;
      }
    }
    CHECK(cut.lines == whole.lines);
    CHECK(cut.times == whole.times);
  }
}

TEST_CASE("decoder: what is no record is refused, and said") {
  constexpr std::uint8_t version = trace::trace_version;
  const std::vector<std::vector<std::uint8_t>> bad = {
      {},
      {version + 1, 0},
      {version, 1},
      {version, 0, 0},
      section(0, {99}),
      section(5, {2}),                                   // a name outside the control stream
      section(3, {12, 3, 0, 2}),                         // a track that was never named
      section(0, {2, 2, 0, 0, 0, 0, 1, 'x'}),            // numbered with a gap
      section(0, {2, 1, 200, 0, 0, 0, 1, 'x'}),          // no such operation
      section(0, {2, 1, 0, 0, 0, 65}),                   // 65 dimensions
      section(0, {2, 1, 0, 0, 0, 0, 0xff, 0xff, 0x7f}),  // a long name
      section(1, {12, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
      section(1, {12, 13, 0, 1, 99, 0}),           // no such phase of a device
      {version, 0, 0xff, 0xff, 0, 0, 0, 0},        // a stream too many
      {version, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f},  // longer than it is
  };
  for (const auto& body : bad) {
    Lines lines;
    trace::TraceDecoder decoder(lines);
    CHECK_FALSE(decoder.feed(body));
    CHECK(decoder.error() != "");
    CHECK_FALSE(decoder.feed(section(0, {0})));
  }
}

TEST_CASE("decoder: what stands before a reset is void") {
  Lines lines;
  trace::TraceDecoder decoder(lines);
  CHECK(decoder.feed(section(1, {8, 2, 7, 12, 8, 2, 9})));
  CHECK(lines.lines == std::vector<std::string>{"end 9"});
}

TEST_CASE("decoder and timeline: damaged bytes never do harm") {
  const test::Frames frames = recording();
  std::mt19937 random(42);
  for (int round = 0; round < 4000; ++round) {
    std::size_t text_bytes = 0;
    trace::Timeline timeline(0, [&](std::string_view lines) { return text_bytes += lines.size(), true; });
    for (int rank = 0; rank < 2; ++rank)
      for (auto frame : frames) {
        const std::size_t damage = random() % 8;
        for (std::size_t i = 0; i < damage; ++i) frame[random() % frame.size()] = static_cast<std::uint8_t>(random());
        if (random() % 4 == 0) frame.resize(random() % (frame.size() + 1));
        timeline.feed(rank, frame);
      }
    timeline.show_pending(INT64_MAX / 2);
    timeline.show_all();
    CHECK(text_bytes < 10'000'000);
  }
}

TEST_CASE("decoder: noise never does harm") {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::size_t text_bytes = 0;
    bool refused = false;
    trace::Timeline timeline(0, [&](std::string_view lines) { return text_bytes += lines.size(), true; });
    for (int i = 0; i < 4; ++i) {
      std::vector<std::uint8_t> bytes(random() % 200);
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % 2 ? random() % 16 : random());
      if (!bytes.empty() && random() % 2) bytes[0] = static_cast<std::uint8_t>(trace::TraceTag::reset);
      refused = !timeline.feed(0, section(static_cast<std::uint16_t>(random() % 4), bytes));
      if (refused) break;
    }
    timeline.show_all();
    CHECK(text_bytes < 1'000'000);
    CHECK((timeline.why(0) != "") == refused);
  }
}
