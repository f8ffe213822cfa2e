/// Messages between two ranks count only while a thread waits for them.
#include "core/status/message_waits.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "negotiate/command.h"

using namespace hvd;
using core::MessageWaits;

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

/// "NAME 6 s rank 1", one line for each wait that is worth telling.
std::string told(const MessageWaits& waits, double now) {
  std::vector<core::StallReport> reports;
  waits.long_waits(static_cast<std::int64_t>(now * 1e9), 5 * second_ns, reports);
  std::string text;
  for (const core::StallReport& r : reports)
    text += r.name + " " + std::to_string(r.waited_ns / second_ns) + " s " + r.missing.text(4) + "\n";
  return text;
}

}  // namespace

TEST_CASE("message waits: the names of messages") {
  CHECK(negotiate::is_message_name("c10d/world/send 1 to 0 tag 99 #1"));
  CHECK(negotiate::is_message_name("c10d.2/1[0-1]/send 1 to 0 tag 0 #64"));
  CHECK_FALSE(negotiate::is_message_name("c10d/world #1"));
  CHECK_FALSE(negotiate::is_message_name("broadcast.a/send b"));
}

TEST_CASE("message waits: the time counts from the wait, in pieces, and ends with it") {
  MessageWaits waits;
  for (double now = 100; now < 106; now += 0.5) waits.look({{"a", 1, 1, false}}, static_cast<std::int64_t>(now * 1e9));
  CHECK(waits.has("a"));
  CHECK_FALSE(waits.has("b"));
  CHECK(told(waits, 105.5) == "a 5 s rank 1\n");
  waits.look({}, 106 * second_ns);
  CHECK(told(waits, 106.0) == "a 6 s rank 1\n");  // between two pieces of a wait
  CHECK(told(waits, 108.0).empty());
  waits.look({}, 108 * second_ns);
  CHECK_FALSE(waits.has("a"));
}

TEST_CASE("message waits: the next message of a name is another wait") {
  MessageWaits waits;
  for (int now = 0; now < 20; ++now) waits.look({{"a", now / 4, 1, false}}, now * second_ns);
  CHECK(told(waits, 19).empty());
}

TEST_CASE("message waits: nobody is missing while data moves") {
  MessageWaits waits;
  for (int now = 0; now < 9; ++now) waits.look({{"a", 7, 1, true}}, now * second_ns);
  CHECK(told(waits, 8).empty());
  CHECK(waits.has("a"));
  CHECK(waits.waited_ns("a", 8 * second_ns) == 0);
}

TEST_CASE("message waits: the warning repeats at its interval") {
  MessageWaits waits;
  std::vector<int> at;
  for (int now = 1; now < 200; ++now) {
    waits.look({{"a", 7, 3, false}}, now * second_ns);
    if (const std::string text = waits.warning(now * second_ns, 60 * second_ns); !text.empty()) {
      CHECK(text.find("'a' for ") != std::string::npos);
      CHECK(text.find("not submitted by rank 3") != std::string::npos);
      at.push_back(now);
    }
  }
  CHECK(at == std::vector<int>{61, 121, 181});
}
