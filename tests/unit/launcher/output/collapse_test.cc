#include "launcher/output/collapse.h"

#include <doctest/doctest.h>

#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

struct CollapsedScreen {
  explicit CollapsedScreen(int size) : collapser(size) {}
  void line(int rank, const std::string& text, int after_ms = 0) {
    now += std::chrono::milliseconds(after_ms);
    collapser.add(rank, 0, text, now, take);
  }
  std::string end() {
    collapser.flush(now, true, take);
    return std::move(shown);
  }
  Collapser collapser;
  Collapser::Clock::time_point now{};
  std::string shown;
  Collapser::Take take = [this](const std::vector<int>& ranks, int, const std::string& line) {
    shown += ranges(ranks) + ":" + line + " ";
  };
};

}  // namespace

TEST_CASE("collapse: lines that all print are one, at once") {
  CollapsedScreen s(3);
  for (const int rank : {2, 0, 1}) s.line(rank, "loaded");
  CHECK(s.shown == "0-2:loaded ");
}

TEST_CASE("collapse: each rank's order is kept") {
  CollapsedScreen s(2);
  s.line(0, "a"), s.line(0, "b"), s.line(1, "b"), s.line(1, "a");
  CHECK(s.end() == "0:a 0-1:b 1:a ");
  s.line(0, "a"), s.line(0, "b"), s.line(1, "a"), s.line(1, "b");
  CHECK(s.end() == "0-1:a 0-1:b ");
  s.line(0, "x"), s.line(0, "x"), s.line(1, "x");
  CHECK(s.end() == "0-1:x 0:x ");
}

TEST_CASE("collapse: nothing is held for long") {
  CollapsedScreen s(2);
  s.line(0, "a");
  s.line(1, "b", 200);
  CHECK(s.shown == "0:a ");
  s.line(0, "b", 10);
  CHECK(s.shown == "0:a 0-1:b ");
}
