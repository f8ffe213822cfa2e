#include "launcher/supervise/hang.h"

#include <doctest/doctest.h>

#include "../errors.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

const std::string python =
    "Thread 0x00007f01 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
    "\n"
    "Current thread 0x00007f00 (most recent call first):\n"
    "  File \"/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py\", line 5 in relu\n"
    "  File \"/home/u/my loss.py\", line 88 in forward\n"
    "  File \"/home/u/train.py\", line 3 in <module>\n";

Plan plan() { return plan_ranks(parse_hosts("a:2,b:2"), {false, false}, 4); }

std::string told(const Stall& stall, const Pictures& pictures, const std::vector<int>& ended = {}) {
  return join(hang_lines(stall, plan(), pictures, ended), "\n");
}

}  // namespace

TEST_CASE("hang: the user's own line, not a library's") {
  CHECK(user_line(python) == "my loss.py:88 (forward)");
  CHECK(user_line("Current thread 0x1 (most recent call first):\n  File \"/x/t.py\", line 3 in <module>\n") ==
        "t.py:3");
  CHECK(user_line("Current thread 0x1 (most recent call first):\n  File \"/usr/lib/python3.11/a.py\", line 3 in f\n") ==
        "a.py:3 (f)");
  CHECK(user_line("Thread 0x1 (most recent call first):\n  File \"/x/t.py\", line 3 in f\n").empty());
  CHECK(user_line("").empty());
  CHECK(user_line("Current thread\n  File \"x\n  File \"x\", line 3\n").empty());
}

TEST_CASE("hang: who is missing, where, and who waits") {
  CHECK(told({"grad/layer3", 5.2, {3}, 4, 0}, {{3, {"R", python, ""}}}) ==
        "hvdrun: rank 3 on b is in my loss.py:88 (forward); 3 ranks have waited 5 s for grad/layer3");
  CHECK(told({"x", 7, {2, 3}, 4, 0}, {{2, {"T", "", ""}}, {3, {"T", "", ""}}}) ==
        "hvdrun: ranks 2-3 on b are stopped (kill -CONT lets it go on); 2 ranks have waited 7 s for x");
  CHECK(told({"x", 7, {0, 1, 3}, 4, 0}, {{0, {"S", "", ""}}, {1, {"", "", ""}}}, {3}) ==
        "hvdrun: rank 0 on a waits; 1 rank has waited 7 s for x\n        ranks 1,3 have ended");
  CHECK(told({"x", 7, {1}, 4, 2}, {}) ==
        "hvdrun: rank 1 on a does not answer; 1 rank has waited 7 s for x\n        and 2 more ranks");
}

TEST_CASE("hang: what a rank sends is checked") {
  const Stall s = stall_from_json(R"({"tensor":"a\u001bb","waited_seconds":5.5,"missing":[2,0]})", 3);
  CHECK(s.tensor == "a?b");
  CHECK(s.missing == std::vector<int>{0, 2});
  CHECK(error_of([] {
          stall_from_json(R"({"tensor":"a","waited_seconds":5,"missing":[3]})", 3);
        }).starts_with("stall.missing"));
  CHECK(error_of([] { stall_from_json("[]", 3); }).starts_with("stall"));
}
