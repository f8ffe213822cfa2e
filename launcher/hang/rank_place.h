/// @file rank_place.h — where a rank is, read from the text of Python's faulthandler.  Pure.
#pragma once
#include <optional>
#include <string>

#include "wire/messages/stack_picture.h"
#include "wire/shared/source_frame.h"

namespace hvd::launcher {

/// The innermost line of the user's own code in the main thread.  Without such code, the innermost line.  Nothing: the
/// text has no main thread.
std::optional<wire::SourceFrame> user_frame(const std::string& python);

/// user_frame() in words: "loss.py:88 (forward)".  Empty: the text has no main thread.
std::string user_line(const std::string& python);

/// "all_reduce": the function of torch.distributed that the user's code has called in the main thread.  Empty: none.
std::string c10d_function(const std::string& python);

/// The main thread's work, if that work is known to take long.  Empty: no such work, or a collective within that work
/// waits for other ranks.  Possible texts:
/// - "waiting for a DataLoader worker", "loading a batch", "importing"
/// - "compiling (torch.compile)", "compiling (jax.jit)", "compiling (tf.function)"
/// - "waiting for its threads, since its script has ended"
/// - "saving a checkpoint", "loading a checkpoint", "in a checkpoint"
/// - "evaluating": the thread computes in a user's function eval…, valid… or test
std::string long_work(const std::string& python, const std::string& state);

/// The present work of the rank's workers, child processes or threads, as a clause after long_work():
/// - a DataLoader's worker: "which computes in data.py:41 (__getitem__)", "which is in …", "which has process id 12 and
///   reads from /data/part-3"
/// - threads at the end of the script: "and a thread is in data.py:18 (fill)"
/// - other child processes, while the main thread waits: "while 2 of its child processes compute"
/// Empty: nothing is known.
std::string helpers_place(const wire::StackPicture& picture);

/// True if the rank does work that ends_by_itself(), or waits for a DataLoader's worker that computes.
bool is_at_work(const wire::StackPicture& picture);

/// True if @p long_work, a result of long_work(), ends without help: it needs time, and other ranks must wait.
/// A rank that sleeps while it loads a batch may wait for something else.
bool ends_by_itself(const std::string& long_work, const std::string& state);

}  // namespace hvd::launcher
