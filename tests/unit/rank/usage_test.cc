/// The guard's view of a rank's GPU, over a fake library of NVIDIA's (tests/rank/fakes/nvml.cc).
#include "rank/diagnostics/usage.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

using namespace hvd::rank;

namespace {

/// Sets the driver's facts from now on. A query sees all of them or none.
void tell(const std::string& text) {
  const std::string name = std::getenv("HVD_FAKE_NVML");
  std::ofstream(name + ".new") << text;
  REQUIRE(std::rename((name + ".new").c_str(), name.c_str()) == 0);
}

bool comes(const std::function<bool()>& state) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!state()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Counts the threads of this process. A watch's thread ends by itself, and each test waits for that: it must not
/// overlap another test, nor the end of the program. The thread sanitizer has a thread of its own, which starts with
/// the first thread here.
auto threads() {
  [[maybe_unused]] static const bool first = (std::thread([] {}).join(), true);
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// Removed when the program ends.
struct UsageFolder {
  char name[40] = "/tmp/hvd-usage-test.XXXXXX";
  UsageFolder() { REQUIRE(mkdtemp(name)); }
  ~UsageFolder() {
    for (const char* file : {"/nvml", "/nvml.new", "/nvml.asked"}) std::remove((std::string(name) + file).c_str());
    rmdir(name);
  }
};

}  // namespace

TEST_CASE("GPU watch: how busy it was, who had its memory, and what its driver reported while the rank ran") {
  const UsageFolder folder;
  setenv("HVD_FAKE_NVML", (std::string(folder.name) + "/nvml").c_str(), 1);
  const std::string processes = "process " + std::to_string(getpid()) + " 4096\nprocess 999999999 1024\n";
  tell(processes + "ecc 2\n");
  const auto before = threads();
  hvd::wire::DeathRecord record;
  GpuFacts facts;
  {
    const GpuWatch watch("GPU-f0", getpid());
    REQUIRE(comes([&] { return watch.fill(&record), record.gpu_peak_bytes > 0; }));
    tell(processes + "ecc 5\nxid 79\nxid 48\n");
    // Two queries of the driver: one of them may still have had the old answer.
    REQUIRE(comes([&] { return facts = watch.facts(), facts.xids.size() == 2 && facts.lost_words == 3; }));
  }
  REQUIRE(comes([&] { return threads() <= before; }));
  CHECK(record.gpu_busy_percent == 50);
  CHECK(record.gpu_peak_bytes == 3ll << 30);
  CHECK(facts.xids == std::vector<std::uint64_t>{79, 48});
  CHECK(facts.total_bytes == 8ll << 30);
  CHECK(facts.free_bytes == 5ll << 30);
  REQUIRE(facts.processes.size() == 2);
  CHECK(facts.processes[0].own);
  CHECK(facts.processes[0].bytes == 4ll << 30);
  CHECK(!facts.processes[0].name.empty());
  CHECK(!facts.processes[1].own);
  CHECK(facts.processes[1].name.empty());
}

TEST_CASE("GPU watch: the memory that the rank has left behind, once the driver has named the rank") {
  const UsageFolder folder;
  setenv("HVD_FAKE_NVML", (std::string(folder.name) + "/nvml").c_str(), 1);
  tell("process 999999999 1024\n");
  hvd::wire::DeathRecord record;
  const GpuWatch watch("GPU-f0", getpid());
  REQUIRE(comes([&] { return watch.fill(&record), record.gpu_peak_bytes > 0; }));
  CHECK(watch.bytes_left() == -1);
  tell("process 999999999 1024\nprocess " + std::to_string(getpid()) + " 4096\n");
  REQUIRE(comes([&] { return watch.bytes_left() == 4ll << 30; }));
  tell("process 999999999 1024\n");
  CHECK(comes([&] { return watch.bytes_left() == 0; }));
}

TEST_CASE("GPU watch: nothing is said of a GPU that is none") {
  for (const char* gpu : {"", "GPU-unknown"}) {
    const auto before = threads();
    GpuFacts facts;
    hvd::wire::DeathRecord record;
    {
      const GpuWatch watch(gpu, getpid());
      facts = watch.facts();
      watch.fill(&record);
      CHECK(watch.bytes_left() == -1);
    }
    REQUIRE(comes([&] { return threads() <= before; }));
    CHECK(facts.total_bytes == 0);
    CHECK(facts.processes.empty());
    CHECK(record.gpu_busy_percent == -1);
    CHECK(record.gpu_peak_bytes == 0);
  }
}

TEST_CASE("standing: what hvdrun has to be told of") {
  using hvd::wire::RankPhase;
  StatusChanges news;
  CHECK_FALSE(news.next({}));
  CHECK(news.next({RankPhase::init, 0.1, "", 0}));
  CHECK_FALSE(news.next({RankPhase::init, 5, "", 0}));
  CHECK(news.next({RankPhase::working, 0.1, "", 0}));
  CHECK_FALSE(news.next({RankPhase::working, 1, "a", 1.5}));  // not long yet
  const auto told = news.next({RankPhase::working, 2, "a", 2.5});
  REQUIRE(told);
  CHECK(told->waits_for == "a");
  CHECK_FALSE(news.next({RankPhase::working, 3, "a", 3.5}));
  CHECK(news.next({RankPhase::working, 4, "b", 2.5}));
  CHECK(news.next({RankPhase::working, 9, "b", 2.1}));  // another wait
  const auto over = news.next({RankPhase::working, 10, "b", 0.2});
  REQUIRE(over);
  CHECK(over->waits_for.empty());
  using hvd::wire::GpuProgress;
  CHECK(news.next({RankPhase::working, 11, "b", 2.5, GpuProgress::computing, "c"}));
  CHECK_FALSE(news.next({RankPhase::working, 12, "b", 3.5, GpuProgress::computing, "c"}));
  CHECK(news.next({RankPhase::working, 13, "b", 4.5, GpuProgress::exchanging, ""}));
  const auto goes_on = news.next({RankPhase::working, 14, "b", 0.5, GpuProgress::computing, "d"});
  REQUIRE(goes_on);
  CHECK(goes_on->gpu == GpuProgress::none);
}

TEST_CASE("standing: an idle time is told when it is long, and when it ends") {
  using hvd::wire::StatusReport;
  StatusChanges news;
  CHECK_FALSE(news.next(StatusReport{.idle_seconds = 59}));
  const auto told = news.next(StatusReport{.idle_seconds = 61});
  REQUIRE(told);
  CHECK(told->idle_seconds == 61);
  CHECK_FALSE(news.next(StatusReport{.idle_seconds = 71}));
  const auto over = news.next(StatusReport{.idle_seconds = 0});
  REQUIRE(over);
  CHECK(over->idle_seconds == 0);
}
