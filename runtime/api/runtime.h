/// @file runtime.h — the one engine of this process: init, shutdown and access to it.
///
/// All process-global state of libhvd is in api/.  Any thread may call these functions.
#pragma once
#include "core/engine/engine.h"
#include "hvd/hvd.h"

namespace hvd::api {

/// Keeps the engine alive for one call, on any thread.  A shutdown during the call ends the operations for which the
/// call waits.  The shutdown deletes the engine after the last call has left it.
class Use {
 public:
  /// Throws Error{usage} if there is no engine.
  Use();
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  core::Engine& operator*() const { return *engine_; }
  core::Engine* operator->() const { return engine_; }

 private:
  core::Engine* engine_;
};

bool initialized() noexcept;

void init(const hvd_init_options* options);
/// See hvd_expect.
World expect();
void shutdown();
/// @p path: the file, if no launcher collects the timeline; else ignored.
void start_timeline(const char* path, bool mark_cycles);
void stop_timeline();
bool mpi_available() noexcept;

}  // namespace hvd::api
