/// @file completion.h — hands operations that have ended from the runtime's thread to threads of ours.
///
/// The runtime tells of an end in the midst of its work (hvd_notify), where neither libhvd nor a framework may be
/// called: a framework that is told of an end may start the next kernel at once, on the thread that told it.
#pragma once

namespace hvd::bridge {

/// Something to be done on a completion thread.  Linked into the queue itself: posting allocates nothing.
struct Completion {
  virtual ~Completion() = default;
  virtual void finish() = 0;  ///< may delete itself
  /// For post_when_ready(): asked again and again, on a thread of its own; must return at once, and be true one day.
  virtual bool ready() { return true; }
  Completion* next = nullptr;
};

/// Any thread; returns at once.  finish() is called in the order of posting, unless the process is about to exit.  One
/// thread does all; where it makes no progress for 20 ms another joins it, since what a framework runs in finish() may
/// itself wait for the end of an operation behind it in the queue.
void post(Completion* ended);

/// The same once ready() is true; what is not ready holds up nothing.  Looks every 20 to 200 us while there is any.
void post_when_ready(Completion* ended);

/// The interpreter is going down: what ends from now on is dropped, since the framework may be gone already.
void stop_completions();

}  // namespace hvd::bridge
