/// @file fake_rank.cc — writes the records of an engine, without an engine: fake_rank TENSORS STEPS [PAUSE_US]
///
/// The records go the same way as libhvd's: the guard's link under hvdrun, else a file. Prints the time of a step.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "recorder/steps/ticks.h"
#include "recorder/trace/file_sink.h"
#include "recorder/trace/link_sink.h"

using namespace hvd::trace;

namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void start(Tracer& tracer) {
  const TraceSettings settings = settings_from_environment();
  if (settings.start != TraceSettings::Start::now) return;
  if (settings.collected)
    return tracer.start(std::make_unique<LinkSink>(number("HVD_LINK_FD", -1)), settings.mark_cycles);
  tracer.start(make_file_sink({settings.path, number("HVD_RANK", 0), number("HVD_SIZE", 1), "here"}),
               settings.mark_cycles);
}

}  // namespace

int main(int argc, char** argv) {
  const int tensors = argc > 1 ? std::atoi(argv[1]) : 10;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
  const int pause_us = argc > 3 ? std::atoi(argv[3]) : 0;
  Tracer tracer;
  start(tracer);
  std::vector<Track> tracks(static_cast<std::size_t>(tensors));
  std::vector<std::string> names;
  for (int i = 0; i < tensors; ++i) names.push_back("layer." + std::to_string(i) + ".weight");
  const std::int64_t shape[] = {100};
  std::int64_t best = INT64_MAX, total = 0;
  for (int step = 0; step < steps; ++step) {
    const std::int64_t begin = monotonic_ns();
    for (std::size_t i = 0; i < tracks.size(); ++i)
      tracer.submitted(tracks[i], {names[i], TraceOp::allreduce, 7, shape, 0});
    tracer.cycle();
    tracer.batch_begin(1);
    for (const Track track : tracks) tracer.batch_tensor(track);
    tracer.phase_begin(1, Phase::memcpy_in_fusion_buffer);
    tracer.phase_end(1, Phase::memcpy_in_fusion_buffer);
    tracer.phase_begin(1, Phase::shm);
    tracer.phase_end(1, Phase::shm);
    tracer.batch_end(1);
    const std::int64_t took = monotonic_ns() - begin;
    best = std::min(best, took);
    total += took;
    if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
  }
  const std::uint64_t lost = tracer.lost();
  const std::int64_t begin = monotonic_ns();
  tracer.stop();
  std::printf("step best %.1f us mean %.1f us, lost %llu, stop %.1f ms\n", static_cast<double>(best) / 1e3,
              static_cast<double>(total) / 1e3 / std::max(steps, 1), static_cast<unsigned long long>(lost),
              static_cast<double>(monotonic_ns() - begin) / 1e6);
  return 0;
}
