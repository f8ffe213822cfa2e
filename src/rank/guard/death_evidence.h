/// @file death_evidence.h — collects the reasons of a rank's end, and writes its death record.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rank/diagnostics/death/error_file.h"
#include "rank/diagnostics/usage.h"
#include "rank/guard/rank_child.h"
#include "rank/guard/rank_streams.h"
#include "rank/launch/binding.h"
#include "rank/launch/launch_plan.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/death.h"
#include "wire/messages/start_report.h"

namespace hvd::rank {

/// Facts of the rank's start that explain its end.
struct StartFacts {
  int rank = 0;
  std::string host, cwd, temporary_folder;
  std::string gpu_pci;                         ///< empty: no GPU, or an unknown address
  std::string kept_out;                        ///< advice if a Python module is missing; LaunchPlan has it
  bool gpu_planned = false;                    ///< the rank has a GPU of its own
  bool is_python = false;                      ///< the rank runs a Python script, or a program called python
  std::int64_t started_us = mono_ns() / 1000;  ///< CLOCK_MONOTONIC; the kernel log's clock differs little
};

class DeathEvidence {
 public:
  /// Gives the rank the file for its last error, and keeps the facts of its start.  Call it before the rank starts.
  void begin(const wire::RankManifest& m, const Binding& binding, LaunchPlan& plan);
  /// Watches the GPU of @p binding, if it has one.
  void watch_gpu(const Binding& binding, pid_t pid) { gpu_ = std::make_unique<GpuWatch>(binding.gpu, pid); }
  /// GpuWatch::is_busy()
  bool gpu_is_busy() const { return gpu_ && gpu_->is_busy(); }

  // Messages of the rank.
  void set_phase(std::string phase) { phase_ = std::move(phase); }
  /// libhvd's failure; code 0 takes it back.
  void set_failure(wire::Failure failure);
  void set_mismatched_call(wire::MismatchedCall found) { mismatched_call_ = std::move(found); }
  void set_unstarted(wire::StartFailure why) { unstarted_ = std::move(why); }

  /// The death record, without the status page's part.  Call it after the rank's end and the end of its streams.  Held
  /// text goes to @p outbox first.
  /// @param fatal  the crash that the rank's signal handler has reported; empty: none
  /// @param stopped  the guard had an order to end the rank
  wire::DeathRecord record(wire::DeathRecord r, const RankChild& child, RankStreams& streams, const std::string& fatal,
                           bool stopped, Outbox& outbox) const;

 private:
  void judge(wire::DeathRecord* r, const RankChild& child, bool stopped) const;
  void add_system_facts(wire::DeathRecord* r) const;
  std::string take_traceback(wire::DeathRecord* r, const RankChild& child, RankStreams& streams) const;
  void add_last_words(wire::DeathRecord* r, const RankChild& child, const Output& error,
                      const std::string& fatal) const;
  void add_gpu_facts(wire::DeathRecord* r) const;

  StartFacts start_;
  ErrorFile error_file_;
  std::unique_ptr<GpuWatch> gpu_;
  std::string phase_;
  std::optional<wire::StartFailure> unstarted_;
  std::optional<wire::Failure> failure_;
  std::optional<wire::MismatchedCall> mismatched_call_;
};

}  // namespace hvd::rank
