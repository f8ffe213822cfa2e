#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench.h"

namespace hvd::bench {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double value) { return std::round(value * 1e3) / 1e3; }

Json to_json(const BenchRow& row) {
  Json json{{"row", row.key}, {"title", row.title}};
  for (const auto& [who, stats] : row.times)
    json[who] = {{"min", rounded(stats.min())},
                 {"mean", rounded(stats.mean())},
                 {"median", rounded(stats.median())},
                 {"p90", rounded(stats.p90())},
                 {"p99", rounded(stats.p99())}};
  if (!row.value.empty()) {
    json["value"] = row.value;
    json["number"] = rounded(row.number);
    json["unit"] = row.unit;
  }
  return json;
}

}  // namespace

void BenchReport::begin(double flag_ns) {
  before_ = flag_ns;
  if (rank != 0 || json_) return;
  std::printf("%d ranks, float32 sum, microseconds on rank 0; ratio: by the minima and the medians, theirs / ours\n",
              size);
  std::printf("flag round trip before: %.0f ns\n", flag_ns);
  std::printf("%-26s %-10s %11s %11s %11s %11s %11s %8s %8s\n", "", "", "min", "mean", "median", "p90", "p99", "ratio",
              "median");
}

void BenchReport::add(const BenchRow& row) {
  if (rank != 0) return;
  if (json_) {
    rows_.push_back(row);
    return;
  }
  if (!row.value.empty()) std::printf("%-26s %s\n", row.title.c_str(), row.value.c_str());
  const Stats* ours = row.times.empty() ? nullptr : &row.times.front().second;
  for (const auto& [who, stats] : row.times) {
    const bool first = &stats == ours;
    std::printf("%-26s %-10s %11.2f %11.2f %11.2f %11.2f %11.2f", first ? row.title.c_str() : "", who.c_str(),
                stats.min(), stats.mean(), stats.median(), stats.p90(), stats.p99());
    if (!first) std::printf(" %8.2f %8.2f", stats.min() / ours->min(), stats.median() / ours->median());
    std::printf("\n");
  }
  std::fflush(stdout);
}

void BenchReport::end(double flag_ns) {
  if (rank != 0) return;
  if (json_) {
    Json rows = Json::array();
    for (const BenchRow& row : rows_) rows.push_back(to_json(row));
    const Json json{
        {"ranks", size}, {"flag_ns", {std::round(before_), std::round(flag_ns)}}, {"rows", std::move(rows)}};
    std::printf("FIGURES %s\n", json.dump().c_str());
  } else {
    std::printf("flag round trip after: %.0f ns\n", flag_ns);
  }
  std::fflush(stdout);
}

}  // namespace hvd::bench
