/// @file capture.h — the fake driver's stream captures: the calls that a capture forbids, and the calls that end it
/// with an error.
///
/// The rules are those in CUDA's documentation of cuThreadExchangeStreamCaptureMode, cuStreamBeginCapture and
/// cuStreamIsCapturing. CUDA has no list of the calls that are "potentially unsafe". This fake treats as unsafe every
/// call that queries or changes the device and is not queued on a stream. Code that passes here is thus safe with any
/// driver. Captured work runs when its graph is launched, in the order in which it was captured.
#pragma once
#include <functional>
#include <memory>

namespace fake {

struct Capture;

inline constexpr int unsupported = 900, invalidated = 901, merge = 902, unmatched = 903, unjoined = 904,
                     isolation = 905, implicit = 906, captured_event = 907, wrong_thread = 908;

/// Records a call of the driver, by any thread of the process.
void count(const char* function);
/// Called for a potentially unsafe call. Returns 0, or the code with which it is refused; the captures that forbid it
/// are invalid then.
int unsafe();
/// Called for @p work that is put on @p stream; empty: an event. *captured: it is part of a graph, and must not run
/// now.
int put(void* stream, bool* captured, const std::function<void()>& work = {});
/// Runs @p work on a stream.
void enqueue(void* stream, std::function<void()> work);
/// Returns the capture that @p stream is part of, or nullptr. An event recorded on the stream belongs to that capture.
std::shared_ptr<Capture> capture_of(void* stream);
/// Called for cuStreamWaitEvent, with an event that was recorded on @p from, in @p capture (nullptr: in none).
/// *captured: as above.
int wait(void* stream, const std::shared_ptr<Capture>& capture, void* from, bool* captured);
/// Called for a call that conflicts with a capture in every mode.
int conflict(Capture& capture, int code);
/// Called for a stream that waits for the default stream, and for which the default stream waits.
void blocks(void* stream);

}  // namespace fake
