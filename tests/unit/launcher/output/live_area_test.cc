#include "launcher/output/live_area.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

struct Screen {
  std::string bytes;
  LiveArea::TerminalSize size{10, 30};
  LiveArea::Clock::time_point now{1h};
  LiveArea area{[this](std::string_view b) { bytes += b; }, [this] { return size; }};

  /// Returns the text that is written for the next drawing.
  std::string drawn() {
    bytes.clear();
    area.draw(now += LiveArea::interval);
    return bytes;
  }
};

}  // namespace

TEST_CASE("live area: a row is what a terminal shows in one line") {
  CHECK(row_text("50%|\x1b[32m###\x1b[0m|", 80) == "50%|###|");
  CHECK(row_text("a\tb\nc\x07", 80) == "abc");
  CHECK(row_text("äöü and more", 3) == "äöü");
  CHECK(row_text("訓練中 100", 6) == "訓練中");
  CHECK(row_text("訓練中", 5) == "訓練");
  CHECK(row_text("🚀🚀🚀", 4) == "🚀🚀");
  CHECK(row_text("e\u0301e\u0301e", 2) == "e\u0301e\u0301");
  CHECK(row_text("한글", 1).empty());
  CHECK(row_text("a\xc2\x9b"
                 "31mb",
                 80) == "a31mb");
  CHECK(row_text("\x1b", 80).empty());
  CHECK(row_text("\x1b[12", 80).empty());
}

TEST_CASE("live area: a row a rank, drawn again where it was") {
  Screen s;
  CHECK(s.drawn().empty());
  s.area.set(0, "[0] ", "10%");
  s.area.set(1, "[1] ", "20%");
  CHECK(s.drawn() == "[0] 10%\n[1] 20%");
  CHECK(s.drawn().empty());
  s.area.set(1, "[1] ", "30%");
  CHECK(s.drawn() == "\r\x1b[1A\x1b[J[0] 10%\n[1] 30%");
  s.bytes.clear();
  s.area.erase();
  s.area.erase();
  CHECK(s.bytes == "\r\x1b[1A\x1b[J");
  CHECK(s.drawn() == "[0] 10%\n[1] 30%");
  s.area.set(0, "[0] ", "");
  s.area.set(1, "[1] ", "   ");
  CHECK(s.drawn() == "\r\x1b[1A\x1b[J");
}

TEST_CASE("live area: not more often than the interval, not wider or higher than there is room") {
  Screen s;
  s.area.set(0, "[0] ", std::string(100, 'x'));
  CHECK(s.drawn() == "[0] " + std::string(25, 'x'));
  s.area.set(0, "[0] ", "y");
  s.bytes.clear();
  s.area.draw(s.now + 50ms);
  CHECK(s.bytes.empty());
  for (int rank = 0; rank < 9; ++rank) s.area.set(rank, "", "r" + std::to_string(rank));
  CHECK(s.drawn() == "\r\x1b[Jr0\nr1\nr2\nr3\n… and 5 more ranks");
}

TEST_CASE("live area: the reader's prompt is the lowest row until it is answered") {
  Screen s;
  s.area.set_reader(0);
  s.area.set(0, "[0] ", "Name? ");
  s.area.set(1, "[1] ", "5%");
  CHECK(s.drawn() == "[1] 5%\n[0] Name? ");
  s.area.line_was_typed();
  s.area.set(0, "[0] ", "Name? ");
  CHECK(s.drawn() == "[1] 5%");
  s.area.set(0, "[0] ", "Name? And age? ");
  CHECK(s.drawn() == "\r\x1b[J[1] 5%\n[0] Name? And age? ");
}
