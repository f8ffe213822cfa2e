/// @file stack_picture.h — where a rank is, by its stacks.
#pragma once
#include <string>
#include <vector>

namespace hvd::wire {

/// guard → hvdrun: where the rank is.
struct StackPicture {
  std::string state;                      ///< one letter as in ps(1): R, S, D, T (stopped); empty: it does not run
  std::string python;                     ///< frames as faulthandler writes them; empty: not known
  std::string native;                     ///< frames of all threads; empty: not asked for
  std::vector<std::string> addresses{};   ///< of the rank's host
  std::vector<std::string> unanswered{};  ///< addresses from which its connections get no acknowledgement any more
};
std::string to_json(const StackPicture& p);
StackPicture stack_picture_from_json(const std::string& text);

}  // namespace hvd::wire
