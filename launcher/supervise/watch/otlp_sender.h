/// @file otlp_sender.h — sends a job's numbers to a collector by curl, with its proxies and certificates.
///
/// Headers come to curl by a file that only this user can read, so that no key in them shows in a process list; what it
/// is to send, by its standard input.
#pragma once
#include <future>
#include <string>

#include "base/process/capture.h"
#include "launcher/report/metrics/otlp.h"

namespace hvd::launcher {

/// Sends in a thread of its own, one request at a time; never waits for one but at the end.
/// Thread: the event loop's.
class OtlpSender {
 public:
  /// @p curl  its path
  /// @p file  for the headers: a path in a private folder, which is removed with all that is in it
  OtlpSender(std::string curl, OtlpTarget target, std::string file);
  const OtlpTarget& target() const { return target_; }
  bool is_due(double now_seconds) const;
  void send(const std::string& body, double now_seconds);
  /// What went wrong since the last call, said once until it goes well again; empty: nothing.
  std::string trouble();
  /// Waits for what is under way: at most five seconds.
  void finish();
  /// The same, and what came of it is nobody's: its curl may have been ended with the job's processes.
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
