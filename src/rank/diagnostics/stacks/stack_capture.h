/// @file stack_capture.h — the rank's stacks: its Python frames and, on request, its native frames.
///
/// Python frames: `import hvd` (or the bootstrap of a pickle) prepares faulthandler.  When the rank gets stack_signal,
/// faulthandler writes the frames of all threads to a memory file.  This works even while the rank holds the GIL or
/// runs C code.  The signal is sent only to a process that catches it, because by default it kills.
/// Workers: if the main thread waits for a DataLoader's worker, the workers are asked too, one after another.  A worker
/// that the rank has forked has inherited the handler and the file.
/// Native frames: a second process, `hvdrank --native-stack`, reads the threads through libdw.  If libdw crashes there,
/// the guard goes on.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "wire/messages/stack_picture.h"
#include "wire/shared/source_frame.h"

namespace hvd::rank {

inline constexpr int stack_signal = 61;  ///< a real-time signal; no other program is known to use it
inline constexpr const char* stack_signal_variable = "HVD_STACK_SIGNAL";
inline constexpr const char* stack_fd_variable = "HVD_STACK_FD";

/// Takes one picture at a time, in steps, called from the guard's loop.
/// Size: the state of one picture between two steps; each process that is asked writes into the same file.
class StackCapture {
 public:
  using Clock = std::chrono::steady_clock;

  StackCapture();
  /// The descriptor that the rank inherits; -1 where it could not be made.
  int fd() const { return file_.get(); }
  bool under_way() const { return step_ != Step::idle; }
  /// Where the rank was when a signal like SIGSEGV killed it: "in train.py:12 (step)"; empty: not known.
  std::string fatal() const;
  /// The place of fatal() as data: the innermost line of the user's own code, else the innermost line.
  std::optional<wire::SourceFrame> fatal_frame() const;
  void begin(pid_t pid, bool native);
  /// The picture (wire::StackPicture), when it is done.  Call every few milliseconds while under way.
  std::optional<std::string> step();

 private:
  enum class Step { idle, python, worker, native };
  std::optional<std::string> after_python();
  std::string written();
  bool next_worker();
  void after_worker();
  std::optional<std::string> after_workers();
  std::string finish();
  bool ask();
  pid_t start_helper(const char* what, int output) const;

  Fd file_;
  Step step_ = Step::idle;
  pid_t pid_ = -1;
  bool native_wanted_ = false;
  bool by_other_thread_ = false;  ///< another thread than the main thread writes the frames
  char state_ = 0;
  std::size_t size_ = 0;
  Clock::time_point changed_{}, limit_{};
  Fd helper_;
  pid_t helper_pid_ = -1;
  std::string python_, native_text_;
  wire::WorkerPicture asked_;                  ///< the worker that is asked
  std::vector<pid_t> workers_;                 ///< processes to be asked yet
  std::optional<wire::WorkerPicture> worker_;  ///< the worker that makes a batch; until it is found, a worker that did
                                               ///< not answer
};

/// fatal() for the text that faulthandler wrote; earlier pictures may precede it.  Pure.
std::string fatal_place(const std::string& written);

/// hvdrank --native-stack PID: prints the native frames of all threads of a process.  Returns the exit code.
int print_native_stack(pid_t pid);

}  // namespace hvd::rank
