/// @file collect.h — ends of the pipeline that keep their input.
#pragma once
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "recorder/trace/tracer.h"
#include "trace/trace_decoder.h"
#include "trace/trace_names.h"

namespace hvd::test {

using Frames = std::vector<std::vector<std::uint8_t>>;

/// Keeps frames in memory that outlives the tracer.
class MemorySink : public trace::Sink {
 public:
  struct Store {
    std::mutex mutex;
    Frames frames;
    bool closed = false;
  };
  explicit MemorySink(Store& store) : store_(store) {}
  bool write(std::span<const std::uint8_t> body) override {
    const std::lock_guard lock(store_.mutex);
    store_.frames.emplace_back(body.begin(), body.end());
    return true;
  }
  void close() override { store_.closed = true; }

 private:
  Store& store_;
};

/// The calls that a decoder made, one line each.
class Lines : public trace::TraceListener {
 public:
  std::vector<std::string> lines;
  std::vector<trace::TraceTrack> tracks;
  std::vector<std::int64_t> times;
  std::uint64_t lost = 0;
  int starts = 0;

  void on_start() override { ++starts; }
  void on_clock(std::int64_t) override {}
  void on_track(std::uint32_t id, trace::TraceTrack track) override {
    lines.push_back("track " + std::to_string(id) + " " + track.name);
    tracks.push_back(std::move(track));
  }
  void on_submitted(std::uint32_t id, std::int64_t ns) override { add("submitted " + std::to_string(id), ns); }
  void on_batch_begin(std::uint32_t batch, std::int64_t ns) override { add("begin " + std::to_string(batch), ns); }
  void on_batch_tensor(std::uint32_t id) override { lines.push_back("tensor " + std::to_string(id)); }
  void on_phase_begin(std::uint32_t batch, trace::Phase phase, std::int64_t ns) override {
    add("phase " + std::to_string(batch) + " " + std::to_string(static_cast<int>(phase)), ns);
  }
  void on_phase_end(std::uint32_t batch, trace::Phase phase, std::int64_t ns) override {
    add("phase end " + std::to_string(batch) + " " + std::to_string(static_cast<int>(phase)), ns);
  }
  void on_batch_end(std::uint32_t batch, std::int64_t ns) override { add("end " + std::to_string(batch), ns); }
  void on_failed(std::uint32_t id, std::int64_t ns) override { add("failed " + std::to_string(id), ns); }
  void on_cycle(std::int64_t ns) override { add("cycle", ns); }
  void on_step(std::int64_t number, std::int64_t ns) override { add("step " + std::to_string(number), ns); }
  void on_part(hvd::trace::TracedPart part, bool begins, std::int64_t ns) override {
    add((begins ? "begin " : "end ") + std::string(hvd::trace::part_name(part)), ns);
  }
  void on_lost(bool, std::uint64_t records) override { lost += records; }

 private:
  void add(std::string line, std::int64_t ns) {
    lines.push_back(std::move(line));
    times.push_back(ns);
  }
};

}  // namespace hvd::test
