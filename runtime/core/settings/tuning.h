/// @file tuning.h — HOROVOD_AUTOTUNE on the world's coordinator: measures windows of steps, and chooses settings.
///
/// A window begins and ends with a step.  So it has whole steps, however their tensors were fused.  After a change of
/// settings a new window begins, without the batches that were under way.  negotiate/tuner.h has the search.  This
/// class also writes Horovod's log and the file of results.  The caller holds the drive lock.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "common/tuned_settings.h"
#include "common/world.h"
#include "core/settings/config.h"
#include "negotiate/tuner.h"

namespace hvd::core {

/// The settings without tuning.
TunedSettings settings_of(const Config& config);
/// The settings for a network with this round trip between two hosts.  nullopt: the default settings fit, because the
/// latency is less than twice the latency that settings_of() assumes.
std::optional<TunedSettings> settings_for(const Config& config, std::int64_t round_trip_ns);

/// The values of each setting among which the tuner chooses, smallest effect first.
class TuningGrid {
 public:
  /// @param chunk_bytes  the default slice where ranks share a node
  TuningGrid(const World& world, const Config& config, std::size_t chunk_bytes);
  std::vector<int> levels() const;
  TunedSettings settings(const negotiate::Tuner::Point& point) const;
  /// The point nearest to @p settings.  A setting that is not tuned has one level.
  negotiate::Tuner::Point point(const TunedSettings& settings) const;

 private:
  using Setting = std::int64_t TunedSettings::*;
  struct Dimension {
    Setting setting;
    std::vector<std::int64_t> values;
  };
  double size_of(const Dimension& d, std::int64_t value) const;

  TunedSettings fallback_;
  std::int64_t usual_slice_;  ///< the slice that 0 means
  std::vector<Dimension> dimensions_;
};

class Tuning {
 public:
  /// Null: tuning is off, and no file has settings for a job like this one.  A file that cannot be used causes a
  /// message, not an error.
  static std::unique_ptr<Tuning> make(const World& world, const Config& config, std::size_t chunk_bytes);

  /// The settings that the ranks are to use from now on.
  const TunedSettings& settings() const { return settings_; }
  /// Call it when the result of settings() is used from the next batch on.
  void in_use() { fresh_ = false, open_ = false; }
  /// Notes that a batch of @p bytes begins, and with it @p steps training steps.  True: settings() has changed.
  /// @param now_ns  unused where no step has begun
  bool batch(std::int64_t bytes, int steps, std::int64_t now_ns);

 private:
  Tuning(const World& world, const Config& config, std::size_t chunk_bytes);
  bool take_file(const World& world, const Config& config);
  void log(const negotiate::Tuner::Trial& trial);
  void ended();

  TuningGrid grid_;
  const TunedSettings fallback_;
  TunedSettings settings_;
  const int steps_per_window_;
  std::unique_ptr<negotiate::Tuner> tuner_;  ///< null: the file's settings stay
  bool fresh_ = false;                       ///< settings() is not in use yet
  bool open_ = false;                        ///< a window has begun
  std::int64_t since_ns_ = 0, bytes_ = 0;
  int steps_ = 0;
  std::string path_, form_;  ///< the file and the job's form; empty: no file
  Fd log_;
};

}  // namespace hvd::core
