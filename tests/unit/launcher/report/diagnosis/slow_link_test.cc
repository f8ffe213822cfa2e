#include "launcher/report/diagnosis/slow_link.h"

#include <doctest/doctest.h>

#include "diagnosis_words.h"
#include "launcher/report/diagnosis/diagnosis.h"
#include "simulated_job.h"

namespace hvd::launcher {
namespace {

constexpr double megabyte = 1e6;

/// Hosts a, b, c with a rank each.
UsedLink link(const char* from, const char* to, double megabytes_a_second, double megabytes = 1000) {
  return {from[0] - 'a', to[0] - 'a', from, to, megabytes * megabyte, megabytes / megabytes_a_second};
}

TEST_CASE("slow link: one pair, or all that a host sends or receives") {
  const auto pair = slow_link({link("a", "b", 100), link("b", "c", 12), link("c", "a", 110)});
  REQUIRE(pair);
  CHECK(pair->host == "b");
  CHECK(pair->other == "c");
  CHECK((pair->sends && !pair->receives));
  CHECK(pair->ranks == std::vector<int>{1});
  CHECK(pair->rate == doctest::Approx(12 * megabyte));
  CHECK(pair->others_rate == doctest::Approx(100 * megabyte));

  const auto sends = slow_link({link("a", "b", 100), link("b", "a", 90), link("c", "a", 12), link("c", "b", 13)});
  REQUIRE(sends);
  CHECK(sends->host == "c");
  CHECK(sends->other.empty());
  CHECK((sends->sends && !sends->receives));

  const auto receives = slow_link({link("a", "c", 12), link("b", "c", 13), link("c", "a", 100)});
  REQUIRE(receives);
  CHECK(receives->host == "c");
  CHECK((!receives->sends && receives->receives));
  CHECK(receives->ranks == std::vector<int>{2});

  // Rates of a real run, in MB/s: host c's network interface was limited to 6.25, those of a and b to 50.
  const auto both = slow_link({link("a", "c", 6.5), link("b", "c", 6.6), link("c", "a", 3.5), link("c", "b", 3.6),
                               link("a", "b", 45), link("b", "a", 40)});
  REQUIRE(both);
  CHECK(both->host == "c");
  CHECK((both->sends && both->receives));
}

TEST_CASE("slow link: nothing is said of links that are alike, little used, or without a host in common") {
  CHECK(!slow_link({}));
  CHECK(!slow_link({link("a", "b", 12)}));
  CHECK(!slow_link({link("a", "b", 60), link("b", "a", 100)}));
  CHECK(!slow_link({link("a", "b", 12), link("c", "d", 12), link("c", "a", 100)}));
  // A ring's data goes one way, short messages the other.
  CHECK(!slow_link({link("a", "b", 300), link("b", "c", 280), link("c", "a", 310), link("b", "a", 9, 20),
                    link("a", "c", 8, 20), link("c", "b", 10, 20)}));
  CHECK(!slow_link({{0, 1, "a", "b", 1000, 1}, link("b", "a", 100)}));
}

TEST_CASE("slow link: the report names it among what is under way") {
  simulated::SimulatedJob job{.ranks = 3};
  job.plant = [](int r, int, simulated::Work& w) {
    w.moved = 60, w.operations = 4, w.link_peer = (r + 1) % 3;
    w.link_bytes = 5'000'000, w.link_busy = r == 2 ? 50 : 5;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(3, 1));
  const std::string words = words_of(d);
  INFO(words);
  REQUIRE(d.findings.size() == 1);
  CHECK(d.findings[0].cause == SlowCause::communication);
  CHECK(d.findings[0].host == "node2");
  CHECK(words.find(
            "rank 2 (node2): one link is slow: node2 sends to node0 at 95 MiB/s, the others at 954 MiB/s or more") !=
        std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
