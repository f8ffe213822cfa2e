#include "recorder/trace/file_sink.h"

#include <fstream>

#include "base/json_text.h"
#include "common/log.h"
#include "options/configuration.h"
#include "recorder/steps/ticks.h"
#include "trace/timeline.h"
#include "trace/trace_file.h"

namespace hvd::trace {

namespace {

/// The least time between two searches for hanging operations.
constexpr std::int64_t pending_period_ns = 500'000'000;

/// Identifies a boot of a host.  CLOCK_MONOTONIC values of two boots, or of two hosts, cannot be compared.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

std::int64_t realtime_minus_monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - monotonic_ns();
}

class FileSink : public Sink {
 public:
  explicit FileSink(const FileSinkOptions& options)
      : rank_(options.rank),
        file_(rank_path(options.path, options.rank, options.size),
              static_cast<std::uint64_t>(options::integer_now("HVD_TIMELINE_MAX_MB")) << 20, "HOROVOD_TIMELINE"),
        origin_ns_(monotonic_ns()),
        timeline_(
            origin_ns_, [this](std::string_view events) { return file_.write(events); }, file_.format()) {
    std::string line = R"({"ph":"M","name":"hvd_file","pid":)" + std::to_string(rank_) + R"(,"args":{"host":)";
    append_json_string(line, options.host);
    line += R"(,"boot_id":)";
    append_json_string(line, boot_id());
    line += R"(,"origin_ns":)" + std::to_string(origin_ns_) + R"(,"realtime_minus_monotonic_ns":)" +
            std::to_string(realtime_minus_monotonic_ns()) + "}}";
    timeline_.note(line);
    timeline_.name_rank(rank_, options.host);
    timeline_.mark(rank_, "timeline begins", origin_ns_);
    timeline_.flush();
  }

  bool write(std::span<const std::uint8_t> body) override {
    if (!file_.usable() || !timeline_.feed(rank_, body)) return false;
    const std::int64_t now = monotonic_ns();
    if (now - pending_at_ns_ > pending_period_ns) {
      pending_at_ns_ = now;
      timeline_.show_pending(now);
    }
    timeline_.flush();
    tell();
    return true;
  }

  void quiet() override {
    timeline_.show_pending(INT64_MAX);  // every operation under way counts as hanging
    timeline_.flush();
  }

  void close() override {
    timeline_.show_all();
    file_.write_end("end");
    tell();
  }

 private:
  /// Logs the file's warning, once.
  void tell() {
    const std::string warning = told_ ? "" : file_.warning();
    if (!warning.empty()) log_warning(warning), told_ = true;
  }

  const int rank_;
  TraceFile file_;
  const std::int64_t origin_ns_;
  Timeline timeline_;
  std::int64_t pending_at_ns_ = 0;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Sink> make_file_sink(const FileSinkOptions& options) { return std::make_unique<FileSink>(options); }

}  // namespace hvd::trace
