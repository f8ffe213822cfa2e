/// @file recording.cc — the C interface: timelines, steps, and a job's report and links.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "api/runtime.h"
#include "base/exception_barrier.h"
#include "hvd/hvd.h"
#include "ops/kernels/slice_hash.h"

using hvd::Code;
using hvd::Error;
using hvd::exception_barrier;
using hvd::need;
using hvd::api::Use;
using hvd::recorder::StepPart;
using hvd::recorder::StepRecorder;

namespace {

/// Calls @p tell with the recorder, if there is one.  Ignores errors: the callers return no status.
template <typename Tell>
void tell_recorder(Tell tell) {
  if (!hvd::api::initialized()) return;
  (void)exception_barrier([&] {
    const Use e;
    tell(e->recorder());
  });
}

/// The part with this number; nullopt: the number is unknown, or its part belongs to no single thread.
std::optional<StepPart> part_of(int number) {
  switch (number) {
    case HVD_PART_INPUT:
    case HVD_PART_INPUT_TORCH:
    case HVD_PART_INPUT_TENSORFLOW:
      return StepPart::input;
    case HVD_PART_COLLECT:
      return StepPart::collect;
    case HVD_PART_SAVE:
      return StepPart::save;
    case HVD_PART_COMPILE:
      return StepPart::compile;
    default:
      return std::nullopt;
  }
}

hvd::wire::Loader loader_of(int part) {
  return part == HVD_PART_INPUT_TORCH                                  ? hvd::wire::Loader::torch
         : part == HVD_PART_INPUT_TENSORFLOW || part == HVD_PART_FETCH ? hvd::wire::Loader::tensorflow
                                                                       : hvd::wire::Loader::other;
}

}  // namespace

int hvd_timeline_start(const char* path, int mark_cycles) {
  return exception_barrier([&] { hvd::api::start_timeline(path, mark_cycles != 0); });
}
int hvd_timeline_stop(void) {
  return exception_barrier([] { hvd::api::stop_timeline(); });
}

void hvd_part_begin(int part) {
  if (part == HVD_PART_FUTURE) tell_recorder([](StepRecorder& r) { r.asked(); });
  if (part == HVD_PART_FETCH) tell_recorder([&](StepRecorder& r) { r.fetch_begins(loader_of(part)); });
  if (const auto known = part_of(part)) tell_recorder([&](StepRecorder& r) { r.begin(*known, loader_of(part)); });
}
void hvd_part_end(int part) {
  if (part == HVD_PART_FUTURE) tell_recorder([](StepRecorder& r) { r.told(); });
  if (part == HVD_PART_FETCH) tell_recorder([](StepRecorder& r) { r.fetch_ended(); });
  if (const auto known = part_of(part)) tell_recorder([&](StepRecorder& r) { r.end(*known); });
}
void hvd_step_end(void) {
  tell_recorder([](StepRecorder& r) { r.step_ended(); });
}
void hvd_batches_made(std::int64_t ns) {
  if (ns > 0) tell_recorder([&](StepRecorder& r) { r.batches_made(ns); });
}

int hvd_report(char* text, std::size_t size, std::size_t* length) {
  if (length) *length = 0;
  return exception_barrier([&] {
    need(length, "length");
    if (size > 0) need(text, "text");
    const Use e;
    const std::string report = e->recorder().live_report();
    *length = report.size();
    if (report.size() > size)
      throw Error(Code::usage, "hvd_report", "the report has " + std::to_string(report.size()) + " bytes");
    if (!report.empty()) std::memcpy(text, report.data(), report.size());
  });
}

int hvd_not_finite(char* text, std::size_t size, std::size_t* length) {
  if (length) *length = 0;
  return exception_barrier([&] {
    need(length, "length");
    if (size > 0) need(text, "text");
    const Use e;
    const std::string line = e->take_not_finite();
    *length = line.size();
    if (line.size() > size)
      throw Error(Code::usage, "hvd_not_finite", "the line has " + std::to_string(line.size()) + " bytes");
    if (!line.empty()) std::memcpy(text, line.data(), line.size());
  });
}

std::uint64_t hvd_hash(const void* data, std::size_t bytes) { return hvd::ops::slice_hash(data, bytes); }

int hvd_links(hvd_link* links, std::size_t room, std::size_t* count) {
  if (count) *count = 0;
  return exception_barrier([&] {
    need(count, "count");
    if (room > 0) need(links, "links");
    const Use e;
    const auto found = e->links();
    *count = found.size();
    for (std::size_t i = 0; i < std::min(room, found.size()); ++i) {
      links[i] = {found[i].peer, {}, found[i].bytes, found[i].busy_ns, found[i].round_trip_ns};
      found[i].card.copy(links[i].card, sizeof links[i].card - 1);
    }
  });
}
