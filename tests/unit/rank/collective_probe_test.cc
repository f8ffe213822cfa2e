/// The guard's questions to Python in a rank about torch.distributed.
#include "rank/guard/collective_probe.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <thread>

using namespace hvd;
using namespace hvd::rank;
using namespace std::chrono_literals;

namespace {

/// A rank's connection to its guard.
Fd connected(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  return socket;
}

std::string answer(bool whole) {
  wire::RankCollectives c;
  c.whole = whole;
  c.rank = 1;
  c.torch = "2.9";
  c.groups = {{"0", "default", {0, 1}}};
  wire::CollectiveRecord open;
  open.sequence = 7;
  open.kind = "all_reduce";
  c.last = {open};
  return to_json(c);
}

}  // namespace

TEST_CASE(
    "collective probe: a rank that does not answer, and has run since its last answer, has told only its groups") {
  CollectiveProbe probe;
  Outbox outbox;
  const Fd rank = connected(probe.name());
  const auto tell = [&](bool whole) {
    const std::string text = answer(whole);
    REQUIRE(::send(rank.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  };
  const auto now = CollectiveProbe::Clock::now() + 1s;
  probe.step(outbox, now);  // looks whether the main thread has run
  REQUIRE(probe.is_connected());
  CHECK(!probe.last());
  tell(false);
  probe.step(outbox, now + 100ms);
  probe.ask_all(now + 200ms);
  CHECK(!probe.answered(now + 300ms));
  REQUIRE(probe.last());
  CHECK(probe.last()->last.size() == 1);  // the main thread has slept since then: the answer holds
  std::this_thread::sleep_for(1ms);       // the main thread runs again
  probe.step(outbox, now + 1500ms);
  CHECK(probe.answered(now + 1500ms));
  CHECK(probe.last()->last.empty());
  CHECK(probe.last()->torch.empty());
  CHECK(probe.last()->rank == 1);
  CHECK(probe.last()->groups.size() == 1);
  tell(true);
  probe.step(outbox, now + 1600ms);
  CHECK(probe.last()->last.size() == 1);
}

TEST_CASE("collective probe: a rank that sleeps with a collective under way is asked again") {
  CollectiveProbe probe;
  Outbox outbox;
  const Fd rank = connected(probe.name());
  const auto was_asked = [&] {
    char question = 0;
    bool asked = false;
    while (::recv(rank.get(), &question, 1, MSG_DONTWAIT) == 1) asked = true;
    return asked;
  };
  const auto tell = [&](const std::string& text) {
    REQUIRE(::send(rank.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  };
  auto now = CollectiveProbe::Clock::now() + 1s;
  probe.step(outbox, now);
  probe.step(outbox, now += 4s);
  REQUIRE(was_asked());
  tell(answer(false));  // its wait is short as yet
  for (int second = 0; second < 4; ++second) probe.step(outbox, now += 1s);
  CHECK(was_asked());
}
