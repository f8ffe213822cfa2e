#include "launcher/control/result_stream.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/error.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

/// The result of each rank, joined from its pieces.
std::map<std::uint32_t, std::string> read_back(const std::string& data) {
  std::map<std::uint32_t, std::string> found;
  for (std::size_t at = 0; at + 16 <= data.size();) {
    std::uint32_t rank = 0;
    std::uint64_t length = 0;
    std::memcpy(&rank, data.data() + at, 4);
    std::memcpy(&length, data.data() + at + 8, 8);
    found[rank] += data.substr(at + 16, length);
    at += 16 + length;
  }
  return found;
}

}  // namespace

TEST_CASE("pieces wait for a pipe's reader, and come in order") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const Fd reader(ends[0]);
  const std::string piece(60000, 'x');
  wire::DeathRecord cause;
  cause.rank = 1;
  std::string data;
  char part[65536];
  {
    Results results(std::to_string(ends[1]));
    CHECK((::fcntl(ends[1], F_GETFD) & FD_CLOEXEC) != 0);
    results.begin(2);
    for (int i = 0; i < 10; ++i) {
      results.put(i % 2, piece + std::to_string(i));
      results.flush_ready();
    }
    CHECK(results.pending_bytes() > 400000);
    while (results.pending_bytes()) {
      const ssize_t n = ::read(reader.get(), part, sizeof part);
      REQUIRE(n > 0);
      data.append(part, static_cast<std::size_t>(n));
      results.flush_ready();
    }
    results.finish(cause, "{}", 3);
  }
  for (ssize_t n; (n = ::read(reader.get(), part, sizeof part)) > 0;) data.append(part, static_cast<std::size_t>(n));
  auto found = read_back(data);
  CHECK(found.size() == 7);
  CHECK(found[0xfffffffb] == "2");
  CHECK(found[0xfffffffc] == "{}");
  CHECK(found.contains(0xfffffffe));
  CHECK(data.substr(0, 4) == "\xfe\xff\xff\xff");
  CHECK(found[0] == piece + "0" + piece + "2" + piece + "4" + piece + "6" + piece + "8");
  CHECK(found[1] == piece + "1" + piece + "3" + piece + "5" + piece + "7" + piece + "9");
  CHECK(wire::death_from_json(found[0xffffffff]).rank == 1);
  CHECK(found[0xfffffffd] == "3");
}

TEST_CASE("a full disk, a reader that is gone and a wrong place are told") {
  Results full("/dev/full");
  full.put(0, "x");
  CHECK_THROWS_WITH_AS(full.finish({}, "", 0), doctest::Contains("No space left on device"), Error);
  CHECK_THROWS_AS(Results("/nowhere/results"), Error);
  CHECK_THROWS_AS(Results("99999"), Error);
}
