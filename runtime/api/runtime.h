/// @file runtime.h — the one engine of this process, and how it finds its world.
///
/// All process-global state of libhvd is in api/.
#pragma once
#include "core/engine/engine.h"
#include "hvd/hvd.h"

namespace hvd::api {

/// The engine for the length of one call, from any thread.  A shutdown meanwhile ends what the call waits for, and
/// deletes the engine when the last call has left it.
class Use {
 public:
  /// Throws Error{usage} when there is none.
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
/// @p path: where no launcher collects the timeline.
void start_timeline(const char* path, bool mark_cycles);
void stop_timeline();
bool mpi_available() noexcept;

}  // namespace hvd::api
