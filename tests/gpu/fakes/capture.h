/// @file capture.h — the fake driver's stream captures: what is refused while one is under way, and what ends it badly.
///
/// As CUDA's documentation has it of cuThreadExchangeStreamCaptureMode, cuStreamBeginCapture and cuStreamIsCapturing.
/// It lists nowhere which calls are "potentially unsafe"; here all are that are not put on a stream and ask or change
/// something of the device, so what passes here needs no luck.  What is captured is counted, and never runs.
#pragma once
#include <memory>

namespace fake {

struct Capture;

inline constexpr int unsupported = 900, invalidated = 901, merge = 902, unmatched = 903, unjoined = 904,
                     isolation = 905, implicit = 906, captured_event = 907, wrong_thread = 908;

/// A call of the driver, by whatever thread of the process.
void count(const char* function);
/// For a potentially unsafe call: 0, or the code with which it is refused; the captures that forbid it are void then.
int unsafe();
/// For what is put on @p stream.  *captured: it becomes part of a graph, and must not run.
int put(void* stream, bool* captured);
/// The capture that @p stream is part of, or nullptr.  An event recorded on it belongs to that capture.
std::shared_ptr<Capture> capture_of(void* stream);
/// For cuStreamWaitEvent, of an event that was recorded on @p from, in @p capture (nullptr: in none).  *captured: as
/// above.
int wait(void* stream, const std::shared_ptr<Capture>& capture, void* from, bool* captured);
/// A call that necessarily conflicts, in whatever mode.
int conflict(Capture& capture, int code);
/// A stream that waits for the default one, and is waited for by it.
void blocks(void* stream);

}  // namespace fake
