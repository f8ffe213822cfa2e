/// @file stack_picture.h — the stacks of a rank.
#pragma once
#include <string>
#include <vector>

namespace hvd::wire {

/// guard → hvdrun: the answer to Type::stacks.
struct StackPicture {
  std::string state;   ///< as in ps(1): R, S, D, T (stopped) …; F: its cgroup is frozen; empty: it does not run
  std::string python;  ///< frames as faulthandler writes them; empty: unknown
  std::string native;  ///< native frames of all threads; empty: hvdrun did not ask for them
  std::vector<std::string> addresses{};   ///< of the rank's host
  std::vector<std::string> unanswered{};  ///< addresses that do not acknowledge the data from the rank's connections
};
std::string to_json(const StackPicture& p);
StackPicture stack_picture_from_json(const std::string& text);

}  // namespace hvd::wire
