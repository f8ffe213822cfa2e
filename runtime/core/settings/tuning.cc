#include "core/settings/tuning.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/files/own_file.h"
#include "common/log.h"
#include "core/settings/tuned_file.h"

namespace hvd::core {
namespace {

using negotiate::Tuner;
using negotiate::TunerOptions;

constexpr std::int64_t least_window_ns = 20'000'000;  ///< a shorter window measures mainly the system's clock tick
constexpr std::int64_t most_latency_ns = 1'000'000'000;
constexpr std::int64_t kib = 1 << 10, mib = 1 << 20;

/// Horovod's columns, then the columns that hvdrun adds.
constexpr const char* log_header =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,"
    "score,slice_kib,latency_us,gain,taken\n";

TunerOptions tuner_options_of(const Config& config) {
  TunerOptions options;
  options.most_candidates = static_cast<int>(config.integer("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"));
  options.warmup_windows = static_cast<int>(config.integer("HOROVOD_AUTOTUNE_WARMUP_SAMPLES"));
  return options;
}

std::string described(const TunedSettings& s) {
  char text[160];
  std::snprintf(text, sizeof text, "fusion %.3g MiB, hold %.3g ms, slices %s, latency %.3g us",
                static_cast<double>(s.fusion_bytes) / mib, static_cast<double>(s.hold_ns) / 1e6,
                s.slice_bytes ? (std::to_string(s.slice_bytes / kib) + " KiB").c_str() : "as built",
                static_cast<double>(s.latency_ns) / 1e3);
  return text;
}

}  // namespace

TunedSettings settings_of(const Config& config) {
  TunedSettings settings;
  settings.fusion_bytes = static_cast<std::int64_t>(config.number("HOROVOD_FUSION_THRESHOLD"));
  settings.hold_ns = static_cast<std::int64_t>(config.number("HOROVOD_CYCLE_TIME") * 1e6);
  return settings;
}

std::optional<TunedSettings> settings_for(const Config& config, std::int64_t round_trip_ns) {
  constexpr std::int64_t waking_ns = 5'000;  ///< time to wake a thread that waits for a message
  TunedSettings settings = settings_of(config);
  const std::int64_t latency_ns = round_trip_ns / 2 + waking_ns;
  if (latency_ns < 2 * settings.latency_ns) return std::nullopt;
  settings.latency_ns = std::min(latency_ns, most_latency_ns);
  char text[80];
  std::snprintf(text, sizeof text, "between hosts a round trip takes %.3g ms",
                static_cast<double>(round_trip_ns) / 1e6);
  log_info(std::string(text) + ": exchanges are planned for that");
  return settings;
}

/// Keeps the settings that the user has given.  The grid ends at the default fusion of 128 MiB: more fusion takes more
/// GPU memory.
TuningGrid::TuningGrid(const World& world, const Config& config, std::size_t chunk_bytes)
    : fallback_(settings_of(config)), usual_slice_(static_cast<std::int64_t>(chunk_bytes)) {
  const bool many = world.nodes.size() > 1, alone = world.nodes.size() == static_cast<std::size_t>(world.size);
  Dimension fusion{&TunedSettings::fusion_bytes, {}},
      hold{&TunedSettings::hold_ns, {0, 100'000, 300'000, 1'000'000, 3'000'000}};
  Dimension slice{&TunedSettings::slice_bytes, {64 * kib, 128 * kib, 256 * kib, 0}};
  Dimension latency{&TunedSettings::latency_ns, {2'000, 5'000, 15'000, 50'000, 200'000, 1'000'000}};
  for (std::int64_t bytes = mib; bytes <= 128 * mib; bytes *= 2) fusion.values.push_back(bytes);
  if (alone) {
    usual_slice_ = mib;
    slice.values = {64 * kib, 128 * kib, 256 * kib, 512 * kib, 0, 2 * mib, 4 * mib};
  }
  if (config.given("HOROVOD_FUSION_THRESHOLD")) fusion.values = {fallback_.fusion_bytes};
  if (config.given("HOROVOD_CYCLE_TIME")) hold.values = {fallback_.hold_ns};
  if (!many) slice.values = {0}, latency.values = {fallback_.latency_ns};
  dimensions_ = {slice, fusion, latency, hold};
}

std::vector<int> TuningGrid::levels() const {
  std::vector<int> levels;
  for (const Dimension& d : dimensions_) levels.push_back(static_cast<int>(d.values.size()));
  return levels;
}

TunedSettings TuningGrid::settings(const Tuner::Point& point) const {
  TunedSettings settings = fallback_;
  for (std::size_t d = 0; d < dimensions_.size(); ++d)
    settings.*dimensions_[d].setting = dimensions_[d].values[static_cast<std::size_t>(point[d])];
  return settings;
}

double TuningGrid::size_of(const Dimension& d, std::int64_t value) const {
  if (value == 0 && d.setting == &TunedSettings::slice_bytes) value = usual_slice_;
  return std::log2(static_cast<double>(std::max<std::int64_t>(value, 1)));
}

Tuner::Point TuningGrid::point(const TunedSettings& settings) const {
  Tuner::Point point;
  for (const Dimension& d : dimensions_) {
    const double size = size_of(d, settings.*d.setting);
    const auto nearest = std::min_element(d.values.begin(), d.values.end(), [&](std::int64_t a, std::int64_t b) {
      return std::abs(size_of(d, a) - size) < std::abs(size_of(d, b) - size);
    });
    point.push_back(static_cast<int>(nearest - d.values.begin()));
  }
  return point;
}

std::unique_ptr<Tuning> Tuning::make(const World& world, const Config& config, std::size_t chunk_bytes) {
  std::unique_ptr<Tuning> tuning(new Tuning(world, config, chunk_bytes));
  const bool found = tuning->take_file(world, config);
  if (!config.flag("HOROVOD_AUTOTUNE")) return found ? std::move(tuning) : nullptr;
  tuning->tuner_ = std::make_unique<Tuner>(tuning->grid_.levels(), tuning->grid_.point(tuning->fallback_),
                                           tuning->grid_.point(tuning->settings_), tuner_options_of(config));
  tuning->settings_ = tuning->grid_.settings(tuning->tuner_->next());
  const std::string& path = config.text("HOROVOD_AUTOTUNE_LOG");
  if (path.empty()) return tuning;
  try {
    tuning->log_ = open_own_file(path, WriteMode::truncate, 0644);
    (void)write_all(tuning->log_.get(), log_header);
  } catch (const Error& e) { log_warning(std::string("autotune: there is no log: ") + e.what()); }
  return tuning;
}

Tuning::Tuning(const World& world, const Config& config, std::size_t chunk_bytes)
    : grid_(world, config, chunk_bytes),
      fallback_(settings_of(config)),
      settings_(fallback_),
      steps_per_window_(static_cast<int>(config.integer("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"))) {}

/// Reads the file of HVD_AUTOTUNE_FROM.  True if the file has settings for this job.  HOROVOD_FUSION_THRESHOLD and
/// HOROVOD_CYCLE_TIME override the file if the user sets them.
bool Tuning::take_file(const World& world, const Config& config) {
  if (config.text("HVD_AUTOTUNE_FROM").empty()) return false;
  path_ = config.text("HVD_AUTOTUNE_FROM");
  form_ = form_of_job(world, config);
  try {
    const auto found = settings_in(read_tuned_file(path_), path_, form_, fallback_);
    if (!found) {
      const bool is_tuning = config.flag("HOROVOD_AUTOTUNE");  // then the file need not be there yet
      const std::string nothing = "autotune: " + path_ + " has nothing for " + form_;
      if (is_tuning || world.rank != 0)
        log_info(nothing);
      else
        log_warning(nothing + ": the defaults are used");
      return false;
    }
    settings_ = *found;
    if (config.given("HOROVOD_FUSION_THRESHOLD")) settings_.fusion_bytes = fallback_.fusion_bytes;
    if (config.given("HOROVOD_CYCLE_TIME")) settings_.hold_ns = fallback_.hold_ns;
    log_info("autotune: from " + path_ + ": " + described(settings_));
    return true;
  } catch (const Error& e) {
    log_warning(std::string("autotune: ") + e.what());
    return false;
  }
}

bool Tuning::batch(std::int64_t bytes, int steps, std::int64_t now_ns) {
  if (!tuner_ || fresh_) return false;
  if (steps == 0) {
    bytes_ += bytes;
    return false;
  }
  steps_ += steps;
  const bool whole = open_ && steps_ >= steps_per_window_ && now_ns - since_ns_ >= least_window_ns;
  if (open_ && !whole && steps == 1) {
    bytes_ += bytes;
    return false;
  }
  bool changed = false;
  if (whole && steps == 1) {
    const bool was_tuning = tuner_->tuning();
    if (tuner_->add({static_cast<double>(now_ns - since_ns_) / 1e9, static_cast<double>(bytes_), steps_}))
      log(tuner_->last());
    if (was_tuning && !tuner_->tuning()) ended();
    const TunedSettings next = grid_.settings(tuner_->next());
    changed = fresh_ = next != settings_;
    settings_ = next;
  }
  open_ = true;
  since_ns_ = now_ns;
  bytes_ = bytes;
  steps_ = 0;
  return changed;
}

/// Writes a line of the log.  The score is in bytes per microsecond, as in Horovod.
void Tuning::log(const Tuner::Trial& trial) {
  const TunedSettings s = grid_.settings(trial.point);
  char line[200];
  const int length = std::snprintf(line, sizeof line, "0,0,0,1,%g,%g,%.6g,%lld,%g,%.4f,%d\n",
                                   static_cast<double>(s.hold_ns) / 1e6, static_cast<double>(s.fusion_bytes) / mib,
                                   trial.rate / 1e6, static_cast<long long>(s.slice_bytes / kib),
                                   static_cast<double>(s.latency_ns) / 1e3, trial.gain, trial.taken ? 1 : 0);
  if (log_ && !write_all(log_.get(), {line, static_cast<std::size_t>(length)})) {
    log_warning("autotune: its log cannot be written any more: " + errno_text(errno));
    log_ = {};
  }
}

void Tuning::ended() {
  const TunedSettings best = grid_.settings(tuner_->best());
  char gain[64] = "the defaults are best";
  if (tuner_->gain() > 0) std::snprintf(gain, sizeof gain, "%.1f %% faster than the defaults", 100 * tuner_->gain());
  log_notice("autotune: " + described(best) + ": " + gain);
  if (path_.empty()) return;
  try {
    replace_own_file(path_, with_settings(read_tuned_file(path_), form_, best, tuner_->gain()), 0644);
  } catch (const Error& e) { log_warning(std::string("autotune: cannot save the result: ") + e.what()); }
}

}  // namespace hvd::core
