/// @file stack_picture.h — the stacks of a rank.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace hvd::wire {

/// A process below a rank for which the rank's main thread waits: a DataLoader's worker that makes a batch.
struct WorkerPicture {
  int pid = 0;
  std::string state;   ///< as StackPicture::state
  std::string python;  ///< frames of all threads; empty: unknown, as for workers that the rank has not forked
  std::string call;    ///< the main thread's system call: "reads from /data/part-3"; empty: not known
};

/// guard → hvdrun: the answer to Type::stacks.
struct StackPicture {
  std::string state;   ///< as in ps(1): R, S, D, T (stopped) …; F: its cgroup is frozen; empty: it does not run
  std::string python;  ///< frames as faulthandler writes them; empty: unknown
  std::string native;  ///< native frames of all threads; empty: hvdrun did not ask for them
  std::vector<std::string> addresses{};   ///< of the rank's host
  std::vector<std::string> unanswered{};  ///< addresses that do not acknowledge the data from the rank's connections
  std::optional<WorkerPicture> worker{};
  int computing = 0;  ///< processes below the rank that run on a core, or are ready to
};
std::string to_json(const StackPicture& p);
StackPicture stack_picture_from_json(const std::string& text);

}  // namespace hvd::wire
