/// @file otlp_sender.h — sends a job's numbers to a collector by curl, with its proxies and certificates.
///
/// A process list must show no key.  So curl reads headers from a file that only this user can read, and the numbers
/// from its standard input.
#pragma once
#include <future>
#include <string>

#include "base/process/capture.h"
#include "launcher/report/metrics/otlp.h"

namespace hvd::launcher {

/// Sends from a background thread, one request at a time.  Waits only in finish().
/// Thread: the event loop's.
class OtlpSender {
 public:
  /// @p curl  its path
  /// @p file  the path of the headers' file, in a private folder that the caller removes
  OtlpSender(std::string curl, OtlpTarget target, std::string file);
  const OtlpTarget& target() const { return target_; }
  bool is_due(double now_seconds) const;
  void send(const std::string& body, double now_seconds);
  /// Returns the reason of a request's failure since the last call; empty: no request has failed.  A series of failures
  /// is reported once.
  std::string trouble();
  /// Waits for the request under way: at most five seconds.
  void finish();
  /// Like finish(), but ignores the result: curl may have been killed with the job's processes.
  void drop();

 private:
  static constexpr double every_seconds = 10;

  const std::string curl_;
  const OtlpTarget target_;
  const std::string file_;
  double next_seconds_ = 0;
  bool complained_ = false;
  std::future<CaptureResult> under_way_;
};

}  // namespace hvd::launcher
