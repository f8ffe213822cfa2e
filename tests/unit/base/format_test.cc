#include "base/format.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

using namespace hvd;

TEST_CASE("format: each hole takes the value in its place") {
  const std::string host = "beta";
  CHECK(formatted("rank {} on {}", 3, host) == "rank 3 on beta");
  CHECK(formatted("{}{}{}", "a", std::string_view("bc"), host) == "abcbeta");
  CHECK(formatted("{} of {}", "{}", 2) == "{} of 2");  // a value is not a pattern
  CHECK(formatted("nothing") == "nothing");
  CHECK(formatted("").empty());
}

TEST_CASE("format: text is copied with all its bytes, however long") {
  CHECK(formatted("<{}>", std::string("a\0b", 3)) == std::string("<a\0b>", 5));
  CHECK(formatted("{}", std::string(100'000, 'x')).size() == 100'000);
}

TEST_CASE("format: integers of all sizes and signs") {
  CHECK(formatted("{} {}", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::uint64_t>::max()) ==
        "-9223372036854775808 18446744073709551615");
  CHECK(formatted("{} {} {}", std::int8_t{-1}, std::uint8_t{200}, std::size_t{0}) == "-1 200 0");
  CHECK(formatted("{:02}:{:02}", 7, 12) == "07:12");
  CHECK(formatted("{:04x}:{:02x}", 10, 255U) == "000a:ff");
}

TEST_CASE("format: floating-point numbers say how many digits") {
  CHECK(formatted("{:.1f} s", 1.25) == "1.2 s");
  CHECK(formatted("{:.3g} ms, {:g}, {:+.1f}", 0.123456, 30.0, 0.5) == "0.123 ms, 30, +0.5");
  CHECK(formatted("{:.0f}", std::numeric_limits<double>::max()).size() == 309);
  CHECK(formatted("{:.1f}", 2.5F) == "2.5");
}
