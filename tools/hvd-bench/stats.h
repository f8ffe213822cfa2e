/// @file stats.h — the times of one measurement.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

namespace hvd::bench {

struct Stats {
  std::vector<double> us;
  void add(double microseconds) { us.push_back(microseconds); }
  /// 0 if there are no measurements.
  double at(double quantile) const {
    if (us.empty()) return 0;
    std::vector<double> sorted = us;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(quantile * static_cast<double>(sorted.size())))];
  }
  double min() const { return at(0); }
  /// 0 if there are no measurements.  Unlike the median, it counts rare slow calls.
  double mean() const {
    return us.empty() ? 0 : std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
  }
  double median() const { return at(0.5); }
  double p90() const { return at(0.9); }
  double p99() const { return at(0.99); }
};

}  // namespace hvd::bench
