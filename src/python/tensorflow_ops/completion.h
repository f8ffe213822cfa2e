/// @file completion.h — hands operations that have ended from the runtime's thread to a thread of ours.
///
/// The runtime tells of an end in the midst of its work (hvd_notify), where neither libhvd nor TensorFlow may be
/// called: a kernel's `done` may start the next kernel at once.
#pragma once

namespace hvd::tensorflow {

/// Something to be done on the completion thread.  Linked into the queue itself: posting allocates nothing.
struct Ended {
  virtual ~Ended() = default;
  virtual void finish() = 0;  ///< may delete itself
  Ended* next = nullptr;
};

/// Any thread; returns at once.  finish() is called in the order of posting, unless the process is about to exit.
void post(Ended* ended);

/// The interpreter is going down: what ends from now on is dropped, since TensorFlow may be gone already.
void stop_completions();

}  // namespace hvd::tensorflow
