#include "rank/streams/output.h"

#include <doctest/doctest.h>

#include "base/text.h"

using namespace hvd::rank;
using namespace std::chrono_literals;

namespace {

const std::string trace =
    "Traceback (most recent call last):\n"
    "  File \"a.py\", line 1, in f\n"
    "    g()\n"
    "ValueError: one\ntwo\n";
const std::string chain = "\nDuring handling of the above exception, another exception occurred:\n\n";

struct Bench {
  Tail tail;
  Output err{tail, true};
  Clock::time_point now = Clock::now();
  std::string take(const std::string& s) { return err.take(s, now); }
};

}  // namespace

TEST_CASE("output: passes at once what is no traceback, whole lines or not") {
  Bench b;
  CHECK(b.take("progress 10%\r") == "progress 10%\r");
  CHECK(b.take("x\ny") == "x\ny");
  CHECK(b.take("z\n") == "z\n");
  CHECK(b.err.deadline() == Clock::time_point::max());
  CHECK(b.tail.lines() == std::vector<std::string>{"progress 10%\rx", "yz"});
}

TEST_CASE("output: a traceback before the end goes to the record, whole, chain and message included") {
  Bench b;
  CHECK(b.take("before\n" + trace) == "before\n");
  CHECK(b.take(chain + trace) == "");
  CHECK(b.take("something printed at exit\n") == "");
  std::string rest = "unset";
  CHECK(b.err.finish(&rest) == trace + chain + trace + "something printed at exit\n");
  CHECK(rest == "unset");
}

TEST_CASE("output: torch.distributed's mark in front of each line is no part of a traceback") {
  const auto marked = [](const std::string& text) {
    std::string out;
    for (const std::string& line : hvd::split(text, '\n')) out += line.empty() ? "\n" : "[rank12]: " + line + "\n";
    return out.substr(0, out.size() - 1);
  };
  const std::string once = marked(trace + chain + trace);
  for (const auto& [all, byte_by_byte] :
       {std::pair{once, false}, {once, true}, {marked(once), false}, {marked(once), true}}) {
    Bench b;
    std::string out;
    const std::string text = "[rank12]:[W112 a warning\n[rank]: x\n" + all;
    if (byte_by_byte)
      for (const char c : text) out += b.take(std::string(1, c));
    else
      out = b.take(text);
    std::string rest;
    CHECK(out == "[rank12]:[W112 a warning\n[rank]: x\n");
    CHECK(b.err.finish(&rest) == trace + chain + trace);
  }
  Bench lived;
  CHECK(lived.take(marked(trace)) == "");
  CHECK(lived.err.expire(lived.now + 11s) == marked(trace));
  CHECK(lived.err.shown_traceback() == trace);
}

TEST_CASE("output: what ended a thread goes out at once") {
  Bench b;
  const std::string death = "Exception in thread Thread-1 (work):\n" + trace;
  CHECK(b.take(death) == death);
  CHECK(b.take("Exception ignored in: <f>\n" + trace) == "Exception ignored in: <f>\n" + trace);
  CHECK(b.take(trace) == "");
}

TEST_CASE("output: byte by byte it comes to the same") {
  Bench b;
  std::string out;
  for (const char c : "log\n" + trace + chain + trace) out += b.take(std::string(1, c));
  std::string rest;
  CHECK(out == "log\n");
  CHECK(b.err.finish(&rest) == trace + chain + trace);
}

TEST_CASE("output: a traceback that the rank survives goes out in order, after a while") {
  Bench b;
  CHECK(b.take(trace) == "");
  CHECK(b.err.deadline() == b.now + Output::longest_hold);
  CHECK(b.err.take("going on\n", b.now + 1s) == "");
  CHECK(b.err.expire(b.now + 1s) == "");
  CHECK(b.err.deadline() == b.now + Output::hold_when_it_goes_on);
  CHECK(b.err.expire(b.now + 3s) == trace + "going on\n");
  CHECK(b.take("more\n") == "more\n");
  CHECK(b.err.shown_traceback() == trace + "going on\n");
  std::string rest;
  CHECK(b.err.finish(&rest) == "");
}

TEST_CASE("output: of two tracebacks that are no chain the first is ordinary output") {
  Bench b;
  CHECK(b.take(trace + "retrying\n") == "");
  CHECK(b.take(trace) == trace + "retrying\n");
  std::string rest;
  CHECK(b.err.finish(&rest) == trace);
}

TEST_CASE("output: a line that only begins like a traceback is held for a moment at most") {
  Bench b;
  CHECK(b.take("Trace") == "");
  CHECK(b.err.expire(b.now + 200ms) == "Trace");
  CHECK(b.take("route\n") == "route\n");
  CHECK(b.take("Traceb") == "");
  CHECK(b.take("uster\n") == "Tracebuster\n");
  CHECK(b.take("Tr") == "");
  std::string rest;
  CHECK(b.err.finish(&rest) == "");
  CHECK(rest == "Tr");
}

TEST_CASE("output: what is held is bounded") {
  Bench b;
  b.take("Traceback (most recent call last):\n");
  std::string out;
  for (int i = 0; i < 3000; ++i) out += b.take("  File \"recursive.py\", line 1, in f and a long line of it all\n");
  CHECK(out.size() > Output::most_held_bytes);
}

TEST_CASE("output: stdout is never held; long lines are cut in the tail only") {
  Tail tail;
  Output out(tail, false);
  CHECK(out.take(trace, Clock::now()) == trace);
  const std::string line(100000, 'x');
  CHECK(out.take(line + "\n", Clock::now()) == line + "\n");
  CHECK(tail.lines().back().size() == Tail::most_line_bytes);
  for (int i = 0; i < 50; ++i) out.take(std::to_string(i) + "\n", Clock::now());
  CHECK(tail.lines().size() == Tail::most_lines);
  CHECK(tail.lines().back() == "49");
}

TEST_CASE("output: the last line that may explain the end, without progress bars and warnings") {
  Bench b;
  const Clock::time_point before = b.now - 2s;
  b.take("loading\n  File \"a.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n");
  CHECK(b.err.last_line(before) == "SyntaxError: '(' was never closed");
  b.take("[rank1]: no data in /data\n50%\r100%|#####| 3/3\n\n[W1126 group.cpp:1] a group is left\n");
  CHECK(b.err.last_line(before) == "no data in /data");
  b.take("a.py:3: UserWarning: slow\n  f()\n");
  CHECK(b.err.last_line(before) == "no data in /data");
  b.now += 1s;
  CHECK(b.err.last_line(b.now - 500ms) == "");
  b.take("cut");
  std::string rest;
  b.err.finish(&rest);
  CHECK(b.err.last_line(before) == "cut");
}
