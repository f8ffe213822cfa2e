/// @file stats.h — times of one measured thing.
#pragma once
#include <algorithm>
#include <vector>

namespace hvd::bench {

struct Stats {
  std::vector<double> us;
  void add(double microseconds) { us.push_back(microseconds); }
  double at(double quantile) {
    if (us.empty()) return 0;
    std::sort(us.begin(), us.end());
    return us[std::min(us.size() - 1, static_cast<std::size_t>(quantile * static_cast<double>(us.size())))];
  }
  double min() { return at(0); }
  double median() { return at(0.5); }
  double p99() { return at(0.99); }
};

}  // namespace hvd::bench
