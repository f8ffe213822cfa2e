/// @file engine_context.h — state that the process sets of one engine share.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "core/batch/batch.h"
#include "core/operation/operation_table.h"
#include "core/set/not_finite_note.h"
#include "core/status/rank_status.h"
#include "recorder/steps/operation_recorder.h"
#include "recorder/trace/tracer.h"
#include "wire/shared/agreement_finding.h"

namespace hvd::core {

struct EngineContext {
  EngineContext(int status_fd, int recorder_fd, gpu::Platform& platform)
      : gpus(platform), status(status_fd, recorder_fd) {}
  gpu::Platform& gpus;
  /// The global set calls this when a rank of another node has left the world.  @p names: of the operations under way.
  std::function<void(int rank, const std::string& text, const std::string& names)> gone;
  /// A set calls this when its results differ between ranks.  @p rank: of the world; -1: no rank is known to be at
  /// fault.
  std::function<void(int rank, const std::string& text)> diverged;
  /// Reports the finding of a set to hvdrun.  False: no hvdrun has started this rank.
  std::function<bool(const wire::AgreementFinding& found)> found;
  Workspace::Special special;  ///< of the global set
  std::function<void()> wake;  ///< wakes the engine's thread if it sleeps; any thread
  RankStatus status;
  recorder::OperationRecorder recorder{status.recorder().memory()};
  OperationTable operations{status};
  trace::Tracer tracer;
  NotFiniteNote not_finite;
  std::uint32_t traced = 0;           ///< parts of batches numbered for the timeline so far
  std::atomic<bool> departed{false};  ///< operations failed because a rank left the world in order
  std::atomic<bool> died{false};      ///< … or because one died
  std::atomic<bool> gpu_busy{false};  ///< a GPU is at work for operations that have ended on the host
  std::atomic<int> outstanding{0};    ///< operations of this rank that have not ended, in all sets
};

}  // namespace hvd::core
