/// @file driver.h — the state that the fake driver's parts share: counted calls, planted failures, contexts, streams.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "capture.h"
#include "gpu/cuda/driver.h"
#include "stream.h"

namespace fake {

inline constexpr int invalid_value = 1, out_of_memory = 2, invalid_context = 201, invalid_handle = 400;

/// The value of an environment variable; @p fallback if it is not set.
int number(const char* name, int fallback);

/// The calls of each function. Guarded by counted().
std::map<std::string, int>& counts();
std::mutex& counted();

/// Counts a call. Returns the code that FAKE_CUDA_FAIL has for it; 0: succeed.
int failure(const char* function);

/// Returns an error if the thread has no current context. The runtime's threads must always have one.
int needs_context();

/// The stream of a handle; nullptr: the default stream.
Stream& stream_of(void* stream);
/// Makes @p stream mean another, new stream. The old stream still runs its work.
void replace(void* stream);

/// Runs the work in the stream's order, or adds it to the stream's capture. Returns an error if the capture is invalid.
int run_or_capture(void* stream, std::function<void()> work);

}  // namespace fake

#define FAKE extern "C" __attribute__((visibility("default")))
#define MAY_FAIL(name) \
  if (const int code = fake::failure(name)) return code
#define IN_CONTEXT(name) \
  MAY_FAIL(name);        \
  if (const int code = fake::needs_context()) return code
#define UNSAFE(name) \
  MAY_FAIL(name);    \
  if (const int code = fake::unsafe()) return code
#define UNSAFE_IN_CONTEXT(name) \
  IN_CONTEXT(name);             \
  if (const int code = fake::unsafe()) return code
