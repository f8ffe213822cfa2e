/// Autotune on the coordinator: windows of steps, its log, the file of results, and a world of threads that is tuned.
#include "core/settings/tuning.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/files/own_file.h"
#include "base/text.h"
#include "core/settings/tuned_file.h"
#include "world_of_threads.h"

using namespace hvd;
using hvd::core::Config;
using hvd::core::Tuning;
using hvd::testing::Rank;
using hvd::testing::run_world;

namespace {

/// A folder for one test.
class TuningFolder {
 public:
  TuningFolder() {
    char name[] = "/tmp/hvd-tuning-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TuningFolder() { std::filesystem::remove_all(path_); }
  TuningFolder(const TuningFolder&) = delete;
  TuningFolder& operator=(const TuningFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Two hosts with a rank each.
World two_hosts() { return World::of(0, {0, 1}, 0); }

/// Nanoseconds of a step of 64 MiB: slices of 4 MiB and less fusion are better than the defaults.
std::int64_t step_ns(const TunedSettings& s) {
  double ns = 10e6;
  ns += s.slice_bytes == 4 << 20 ? 0 : s.slice_bytes == 2 << 20 ? 1e6 : 3e6;
  ns += static_cast<double>(s.fusion_bytes) / (32 << 20) * 0.5e6;
  return static_cast<std::int64_t>(ns);
}

/// Runs steps of four batches each, until the settings have stayed for long. Returns the settings in use at the end.
TunedSettings train(Tuning& tuning, int most_steps = 20000) {
  TunedSettings used = tuning.settings();
  tuning.in_use();
  std::int64_t now = 1'000'000'000;
  for (int step = 0, quiet = 0; step < most_steps && quiet < 500; ++step, ++quiet)
    for (int i = 0; i < 4; ++i) {
      const bool changed = tuning.batch(16 << 20, i == 0 ? 1 : 0, now);
      now += step_ns(used) / 4;
      if (!changed) continue;
      CHECK(tuning.settings() != used);
      used = tuning.settings();
      tuning.in_use();
      quiet = 0;
    }
  return used;
}

}  // namespace

TEST_CASE("tuning: finds better settings, logs them as Horovod does, and gives them to the next run") {
  const TuningFolder folder;
  const std::string log = folder.file("log.csv"), file = folder.file("tuned");
  Config config;
  CHECK(Tuning::make(two_hosts(), config, 512 << 10) == nullptr);
  config.set("HVD_AUTOTUNE_FROM", file);
  CHECK(Tuning::make(two_hosts(), config, 512 << 10) == nullptr);  // no results yet
  config.set("HOROVOD_AUTOTUNE", "1").set("HOROVOD_AUTOTUNE_LOG", log);
  const auto tuning = Tuning::make(two_hosts(), config, 512 << 10);
  REQUIRE(tuning != nullptr);
  CHECK(tuning->settings() == TunedSettings());
  const TunedSettings best = train(*tuning);
  CHECK(best.slice_bytes == 4 << 20);
  CHECK(best.fusion_bytes < 32 << 20);
  CHECK(static_cast<double>(step_ns(TunedSettings())) / static_cast<double>(step_ns(best)) > 1.3);

  const std::vector<std::string> rows = split(read_file(log, 1 << 20), '\n');
  CHECK(
      rows.front().starts_with("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
                               "cycle_time_ms,tensor_fusion_threshold,score,"));
  CHECK(rows.size() > 5);
  CHECK(rows.size() <= 2 + 20 + 1);  // header, candidates, the default's turn, and the rest after the last line
  CHECK(split(rows[1], ',').size() == split(rows[0], ',').size());

  config.set("HOROVOD_AUTOTUNE", "0");
  const auto next = Tuning::make(two_hosts(), config, 512 << 10);
  REQUIRE(next != nullptr);
  CHECK(next->settings() == best);
  CHECK(Tuning::make(World::of(0, {0, 1, 2}, 0), config, 512 << 10) == nullptr);  // another number of hosts
  CHECK(train(*next, 1000) == best);                                              // not tuned, so nothing changes
}

TEST_CASE("tuning: what the user has set stays, and a bad start from a file is left") {
  const TuningFolder folder;
  const std::string file = folder.file("tuned");
  Config config;
  config.set("HOROVOD_AUTOTUNE", "1").set("HVD_AUTOTUNE_FROM", file).set("HOROVOD_FUSION_THRESHOLD", 3 << 20);
  const std::string form = core::form_of_job(two_hosts(), config);
  const TunedSettings bad{1 << 20, 3'000'000, 64 << 10, 2'000};
  replace_own_file(file, core::with_settings("", form, bad, 0.5), 0644);
  const auto tuning = Tuning::make(two_hosts(), config, 512 << 10);
  REQUIRE(tuning != nullptr);
  CHECK(tuning->settings().slice_bytes == 64 << 10);
  CHECK(tuning->settings().fusion_bytes == 3 << 20);
  const TunedSettings best = train(*tuning);
  CHECK(best.slice_bytes == 4 << 20);
  CHECK(best.fusion_bytes == 3 << 20);
}

TEST_CASE("tuning: exchanges are planned for a network that is far, and for what is assumed where it is near") {
  const Config config;
  CHECK(!core::settings_for(config, 0));
  CHECK(!core::settings_for(config, 40'000));
  const auto far = core::settings_for(config, 2'000'000);
  REQUIRE(far);
  CHECK(far->latency_ns == 1'005'000);
  CHECK(far->fusion_bytes == core::settings_of(config).fusion_bytes);
  CHECK(core::settings_for(config, std::int64_t{1} << 62)->possible());
}

TEST_CASE("tuning: the file of results") {
  const TunedSettings fallback, some{8 << 20, 300'000, 2 << 20, 200'000};
  const std::string one = "hosts=2 ranks=4 transport=auto", other = "hosts=3 ranks=4 transport=auto";
  std::string text = core::with_settings("", one, some, 0.25);
  text = core::with_settings(text, other, fallback, 0);
  text = core::with_settings(text, one, some, 0.3);
  CHECK(split(text, '\n').size() == 4);  // a comment, two lines
  CHECK(core::settings_in(text, "f", one, fallback) == some);
  CHECK(core::settings_in(text, "f", other, some) == fallback);
  CHECK(!core::settings_in(text, "f", "hosts=4 ranks=4 transport=auto", fallback));
  CHECK(core::settings_in(one + " hold_ns=7\n", "f", one, some)->hold_ns == 7);
  for (const char* wrong :
       {" fusion_bytes=-1", " fusion_bytes=x", " latency_ns=0", " slice_bytes=65", " hold_ns=100000001", " colour=1",
        " hold_ns", " slice_bytes=99999999999999999999", " gain=big"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(core::settings_in("\n" + one + wrong, "f", one, fallback),
                         doctest::Contains("these are no settings"), Error);
  }
  const TuningFolder folder;
  CHECK(core::read_tuned_file(folder.file("none")).empty());
}

TEST_CASE("tuning: a file that is of no use is no error") {
  const TuningFolder folder;
  Config config;
  config.set("HVD_AUTOTUNE_FROM", folder.file("tuned"));
  replace_own_file(folder.file("tuned"), core::form_of_job(two_hosts(), config) + " nonsense\n", 0644);
  CHECK(Tuning::make(two_hosts(), config, 512 << 10) == nullptr);
}

TEST_CASE("tuning: all ranks change at the same batch, and the bits stay the same") {
  const TuningFolder folder;
  // The log has a header, a line for each comparison, and the empty text after the last line. On a machine whose speed
  // varies, a comparison takes many steps. Under a sanitizer the steps are slow, so one comparison or 8 s are enough.
  constexpr bool sanitized = hvd::testing::slower > 1;
  constexpr std::size_t enough = sanitized ? 3 : 4;
  for (const hvd::testing::Split& shape : hvd::testing::worlds({{2, 1}, {4, 2}, {3, 1}, {3, 3}})) {
    CAPTURE(shape.size);
    Config config;
    config.set("HOROVOD_AUTOTUNE", "1").set("HOROVOD_AUTOTUNE_LOG", folder.file("log.csv"));
    config.set("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", 1).set("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", 0);
    config.set("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 6);
    constexpr int tensors = 6;
    const std::vector<std::int64_t> lengths{1000, 300'000, 70'001, 9, 500'000, 20'000};
    run_world(
        shape.size, shape.per_node,
        [&](Rank& rank) {
          std::vector<std::vector<float>> in, out, first;
          for (int t = 0; t < tensors; ++t) {
            std::vector<float> x(static_cast<std::size_t>(lengths[static_cast<std::size_t>(t)]));
            for (std::size_t i = 0; i < x.size(); ++i)
              x[i] = 1.0f / static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(rank.rank() * 13 + t)) % 1009);
            in.push_back(std::move(x));
          }
          out = in;
          const auto logged = [&] { return split(read_file(folder.file("log.csv"), 1 << 20), '\n').size(); };
          const std::int64_t limit = memory::now_ns() + (sanitized ? 8 : 60) * std::int64_t{1'000'000'000};
          float go_on = 1;
          for (int step = 0; go_on > 0; ++step) {
            std::vector<core::Operation*> ops;
            for (std::size_t t = 0; t < tensors; ++t)
              ops.push_back(&rank.submit(Rank::request(HVD_ALLREDUCE, ("t" + std::to_string(t)).c_str(), {lengths[t]},
                                                       in[t].data(), out[t].data())));
            for (core::Operation* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
            if (first.empty()) first = out;
            for (std::size_t t = 0; t < tensors; ++t)
              EXPECT(std::memcmp(first[t].data(), out[t].data(), out[t].size() * sizeof(float)) == 0);
            go_on = rank.rank() == 0 && memory::now_ns() < limit && (step % 20 != 0 || logged() < enough);
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "go on", {1}, &go_on, &go_on)) == HVD_OK);
          }
        },
        config);
    if (!sanitized) CHECK(split(read_file(folder.file("log.csv"), 1 << 20), '\n').size() >= enough);
  }
}
