#include <cstdio>

#include "bench.h"

namespace hvd::bench {
namespace {

std::string quoted(const std::string& text) {  // our own words: nothing in them needs escaping
  return "\"" + text + "\"";
}

std::string text_of(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", x);
  return text;
}

}  // namespace

void BenchReport::begin(double flag_ns) {
  before_ = flag_ns;
  if (rank != 0 || json_) return;
  std::printf("%d ranks, float32 sum, microseconds on rank 0; ratio: by the minima and the medians, theirs / ours\n",
              size);
  std::printf("flag round trip before: %.0f ns\n", flag_ns);
  std::printf("%-26s %-10s %11s %11s %11s %11s %8s %8s\n", "", "", "min", "median", "p90", "p99", "ratio", "median");
}

void BenchReport::add(const BenchRow& row) {
  if (rank != 0) return;
  if (json_) {
    rows_ += rows_.empty() ? "" : ", ";
    rows_ += "{\"row\": " + quoted(row.key) + ", \"title\": " + quoted(row.title);
    for (const auto& [who, stats] : row.times)
      rows_ += ", " + quoted(who) + ": {\"min\": " + text_of(stats.min()) + ", \"median\": " + text_of(stats.median()) +
               ", \"p90\": " + text_of(stats.p90()) + ", \"p99\": " + text_of(stats.p99()) + "}";
    if (!row.value.empty())
      rows_ += ", \"value\": " + quoted(row.value) + ", \"number\": " + text_of(row.number) +
               ", \"unit\": " + quoted(row.unit);
    rows_ += "}";
    return;
  }
  if (!row.value.empty()) std::printf("%-26s %s\n", row.title.c_str(), row.value.c_str());
  const Stats* ours = row.times.empty() ? nullptr : &row.times.front().second;
  for (const auto& [who, stats] : row.times) {
    const bool first = &stats == ours;
    std::printf("%-26s %-10s %11.2f %11.2f %11.2f %11.2f", first ? row.title.c_str() : "", who.c_str(), stats.min(),
                stats.median(), stats.p90(), stats.p99());
    if (!first) std::printf(" %8.2f %8.2f", stats.min() / ours->min(), stats.median() / ours->median());
    std::printf("\n");
  }
  std::fflush(stdout);
}

void BenchReport::end(double flag_ns) {
  if (rank != 0) return;
  if (json_)
    std::printf("FIGURES {\"ranks\": %d, \"flag_ns\": [%.0f, %.0f], \"rows\": [%s]}\n", size, before_, flag_ns,
                rows_.c_str());
  else
    std::printf("flag round trip after: %.0f ns\n", flag_ns);
  std::fflush(stdout);
}

}  // namespace hvd::bench
