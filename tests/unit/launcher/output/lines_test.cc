#include "launcher/output/lines.h"

#include <doctest/doctest.h>

#include "launcher/output/printer.h"

using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

/// Feeds pieces 10 ms apart; returns the lines joined by '|'.
struct Feed {
  Lines lines;
  Lines::Clock::time_point now = Lines::Clock::time_point(100s);
  std::string out;
  Feed& operator()(std::string_view bytes, std::chrono::milliseconds later = 10ms) {
    now += later;
    lines.add(bytes, now, [this](std::string_view l) { out += std::string(l) + "|"; });
    return *this;
  }
  std::string end() {
    lines.end([this](std::string_view l) { out += std::string(l) + "|"; });
    return out;
  }
};

}  // namespace

TEST_CASE("lines: whole lines however the bytes come") {
  CHECK(Feed()("a\nb")("c\n\n")("d").end() == "a|bc||d|");
  CHECK(Feed()("a\r\nb\r")("\nc").end() == "a|b|c|");
  CHECK(Feed().end() == "");
  std::string long_line(Lines::most_line_bytes + 10, 'x');
  CHECK(Feed()(long_line)("\n").end().size() == long_line.size() + 2);
}

TEST_CASE("lines: of a progress bar one state a second, and the last") {
  CHECK(Feed()("\r 1%")("\r 2%")("\r 3%")("\r 4%\n").end() == " 1%| 4%|");
  CHECK(Feed()("\r 1%")("\r 2%")("\r 3%", 2000ms)("\r 4%").end() == " 1%| 2%| 4%|");
  CHECK(Feed()("\r1%\r2%\r3%\r\n").end() == "1%|3%|");
}

TEST_CASE("output: tags") {
  CHECK(tag_of(3, "node1", false) == "[3 node1] ");
  CHECK(tag_of(0, "h", true) == "\x1b[36m[0 h]\x1b[0m ");
}
