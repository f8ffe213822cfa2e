/// @file runtime.h — the one engine of this process, and how it finds its world.
///
/// All process-global state of libhvd is in api/.
#pragma once
#include "core/engine.h"
#include "hvd/hvd.h"

namespace hvd::api {

/// The engine; nullptr when there is none.  hvd_shutdown must not run while a call uses it: that is the caller's
/// business, as hvd.h says, but for calls that wait, which shutdown ends first.
core::Engine* current() noexcept;

void init(const hvd_init_options* options);
void shutdown();
/// @p path: where no launcher collects the timeline.
void start_timeline(const char* path, bool mark_cycles);
void stop_timeline();
bool mpi_available() noexcept;

}  // namespace hvd::api
