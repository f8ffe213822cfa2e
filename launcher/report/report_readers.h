/// @file report_readers.h — the ranks whose programs ask for the live report (hvd.report()).
#pragma once
#include <set>

namespace hvd::launcher {

/// Knows no clock of its own.  Thread: the event loop's.
class ReportReaders {
 public:
  void add(int rank) {
    ranks_.insert(rank);
    sent_seconds_ = -every_seconds;  // a new reader gets the report with the next steps
  }
  /// True when it is time to send the report again; the report counts as sent.
  bool take_due(double now_seconds) {
    if (ranks_.empty() || now_seconds - sent_seconds_ < every_seconds) return false;
    sent_seconds_ = now_seconds;
    return true;
  }
  const std::set<int>& ranks() const { return ranks_; }

 private:
  static constexpr double every_seconds = 2;
  std::set<int> ranks_;
  double sent_seconds_ = -every_seconds;
};

}  // namespace hvd::launcher
