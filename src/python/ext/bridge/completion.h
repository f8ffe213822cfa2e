/// @file completion.h — passes ended operations from the runtime's thread to the bridge's threads.
///
/// The runtime reports an end in the middle of its work (hvd_notify).  No function of libhvd or of a framework may be
/// called there.  A framework that learns of an end may start the next kernel at once, on the thread of the report.
#pragma once

namespace hvd::bridge {

/// A task for a completion thread. The object itself is a link of the queue, so posting allocates no memory.
struct Completion {
  virtual ~Completion() = default;
  virtual void finish() = 0;  ///< may delete itself
  /// For post_when_ready(): called repeatedly, on a thread of its own. ready() must return at once, and must at some
  /// time return true.
  virtual bool ready() { return true; }
  Completion* next = nullptr;
};

/// Any thread; returns at once. finish() is called in the order of posting, unless the process is about to exit. One
/// thread calls all. If it makes no progress for 20 ms, another thread joins it. The reason: a framework's code in
/// finish() may wait for a later operation of the queue.
void post(Completion* ended);

/// Posts once ready() is true; a completion that is not ready delays no other. Polls every 20 to 200 us while there are
/// any.
void post_when_ready(Completion* ended);

/// The interpreter is ending: later ends are dropped, since the framework may be gone already.
void stop_completions();

}  // namespace hvd::bridge
