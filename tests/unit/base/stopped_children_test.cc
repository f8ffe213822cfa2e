/// @file stopped_children_test.cc — how long children of this process have been stopped.
#include "base/process/stopped_children.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <csignal>

using hvd::StoppedChildren;

namespace {

constexpr int stopped = W_STOPCODE(SIGSTOP), continued = __W_CONTINUED, ended = W_EXITCODE(0, 0);
const StoppedChildren::Time begin{};

/// Calls overdue() every second.  @return the children that it returned
std::vector<pid_t> after(StoppedChildren& children, int from_seconds, int to_seconds) {
  std::vector<pid_t> all;
  for (int s = from_seconds; s <= to_seconds; ++s)
    for (const pid_t pid : children.overdue(begin + std::chrono::seconds(s))) all.push_back(pid);
  return all;
}

}  // namespace

TEST_CASE("a stopped child is overdue once, after the limit") {
  StoppedChildren children;
  CHECK(children.take(7, stopped, begin));
  CHECK(children.are_any());
  CHECK(after(children, 0, 4).empty());
  CHECK(after(children, 5, 5) == std::vector<pid_t>{7});
  CHECK_FALSE(children.are_any());
  CHECK(after(children, 6, 20).empty());
}

TEST_CASE("a child that goes on or ends is not overdue") {
  StoppedChildren children;
  children.take(7, stopped, begin);
  children.take(8, stopped, begin);
  CHECK(children.take(7, continued, begin));
  CHECK_FALSE(children.take(8, ended, begin));
  CHECK_FALSE(children.are_any());
  CHECK(after(children, 0, 20).empty());
}

TEST_CASE("time in which the caller was stopped does not count") {
  StoppedChildren children;
  children.take(7, stopped, begin);
  CHECK(children.overdue(begin + std::chrono::hours(1)).empty());
  CHECK(children.overdue(begin + std::chrono::hours(1) + std::chrono::seconds(2)).empty());
  CHECK(children.overdue(begin + std::chrono::hours(1) + std::chrono::seconds(4)) == std::vector<pid_t>{7});
}

TEST_CASE("a second stop counts anew") {
  StoppedChildren children;
  children.take(7, stopped, begin);
  CHECK(after(children, 0, 4).empty());
  children.take(7, continued, begin + std::chrono::seconds(4));
  children.take(7, stopped, begin + std::chrono::seconds(4));
  CHECK(after(children, 5, 8).empty());
  CHECK(after(children, 9, 9) == std::vector<pid_t>{7});
}
