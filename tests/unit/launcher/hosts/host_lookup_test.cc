/// Names that are looked up while an event loop goes on.
#include "launcher/hosts/host_lookup.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace hvd::launcher;

namespace {

/// The answer of a lookup that needs no time of the test's clock.
ResolvedHost awaited(HostLookup& lookup, const std::string& name, double now) {
  for (int i = 0; i < 5000; ++i) {
    if (const auto found = lookup.ask(name, now).host) return *found;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL("no answer");
  return {};
}

}  // namespace

TEST_CASE("host lookup: an answer, and a lookup that fails") {
  HostLookup lookup([](const std::string& name) {
    if (name == "bad") throw std::runtime_error("no thread");
    return ResolvedHost{name, true, {}, {}, {}};
  });
  CHECK(awaited(lookup, "good", 0).local);
  CHECK(awaited(lookup, "bad", 0).unknown == "bad: no thread");
}

TEST_CASE("host lookup: a name service that does not answer delays nobody") {
  std::promise<void> end;
  const auto calls = std::make_shared<std::atomic<int>>(0);  // a thread may begin after the end of this test
  HostLookup lookup([calls, ended = end.get_future().share()](const std::string& name) {
    *calls += name == "slow";
    if (name.starts_with("slow")) ended.wait();
    return ResolvedHost{name, true, {}, {}, {}};
  });
  CHECK_FALSE(lookup.ask("slow", 0).host);
  CHECK(lookup.ask("slow", 1).line.empty());
  CHECK(lookup.ask("slow", 2).line == "waiting for the address of slow");
  CHECK(lookup.ask("slow", 3).line.empty());
  auto least = std::chrono::steady_clock::duration::max();  // does not depend on the machine's load
  for (int i = 0; i < 250; ++i) {
    const auto before = std::chrono::steady_clock::now();
    CHECK_FALSE(lookup.ask("slow" + std::to_string(i), 4).host);
    least = std::min(least, std::chrono::steady_clock::now() - before);
  }
  CHECK(least < std::chrono::milliseconds(10));
  CHECK_FALSE(lookup.ask("slow", 9).host);
  CHECK(lookup.ask("slow", 10).host->unknown == "slow: the name service does not answer");
  CHECK_FALSE(lookup.ask("slow", 20).host);  // waits again, in the same thread
  CHECK_FALSE(lookup.ask("slow", 29).host);
  CHECK(lookup.ask("slow", 30).host);
  CHECK(*calls <= 1);
  end.set_value();
  CHECK(awaited(lookup, "slow", 31).local);
}
