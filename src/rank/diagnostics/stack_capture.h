/// @file stack_capture.h — where the rank is right now: its Python lines and, on request, its native frames.
///
/// Python: `import hvd` (or the bootstrap of a pickle) lets faulthandler write all threads' frames to a memory file
/// when the rank gets stack_signal; that works also while it holds the GIL or sits in C.  The signal is sent only to a
/// process that catches it, for its default is to kill.  Native: hvdrank itself, started anew with --native-stack,
/// reads the threads through libdw, so that a fault in there hurts nobody.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/file.h"

namespace hvd::rank {

inline constexpr int stack_signal = 61;  ///< a real-time signal that nobody else is known to use
inline constexpr const char* stack_signal_variable = "HVD_STACK_SIGNAL";
inline constexpr const char* stack_fd_variable = "HVD_STACK_FD";

/// One letter as in ps(1): R runs, S waits, D waits for a device, T is stopped; 0 when there is no such process.
char process_state(pid_t pid);
bool catches_signal(pid_t pid, int number);

/// Takes one picture at a time, in steps, for the guard's loop.
class StackCapture {
 public:
  using Clock = std::chrono::steady_clock;

  StackCapture();
  /// For the rank to inherit; -1 where it could not be made.
  int fd() const { return file_.get(); }
  bool under_way() const { return step_ != Step::idle; }
  /// Where the rank was when a signal like SIGSEGV killed it: "in train.py:12 (step)"; empty where nothing was written.
  std::string fatal() const;
  void begin(pid_t pid, bool native);
  /// The picture (wire::StackPicture), when it is done.  Call every few milliseconds while under way.
  std::optional<std::string> step();

 private:
  enum class Step { idle, python, native };
  std::optional<std::string> after_python();
  std::string finish();

  Fd file_;
  Step step_ = Step::idle;
  pid_t pid_ = -1;
  bool native_wanted_ = false;
  char state_ = 0;
  std::size_t size_ = 0;
  Clock::time_point changed_{}, limit_{};
  Fd helper_;
  pid_t helper_pid_ = -1;
  std::string python_, native_text_;
};

/// The same from what faulthandler wrote, which may hold pictures of before.  Pure.
std::string fatal_place(const std::string& written);

/// hvdrank --native-stack PID: prints the native frames of all threads of a process.  Returns the exit code.
int print_native_stack(pid_t pid);

}  // namespace hvd::rank
