#include "launcher/report/top_text.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

std::string padded(const std::string& text, std::size_t width, bool left = false) {
  std::size_t letters = 0;
  for (const char c : text) letters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  const std::string blanks(width > letters ? width - letters : 0, ' ');
  return left ? text + blanks : blanks + text;
}

}  // namespace

std::string top_text(const LiveReport& report, double now_seconds, std::size_t most_ranks) {
  const StepStatistics recent = report.recent(now_seconds);
  if (recent.steps() == 0) return "no step has ended in the last half minute (the first few do not count)\n";
  std::string text = formatted("{} until now; the last half minute:\n", count_of(report.whole().steps(), "step"));
  for (const std::string& line : diagnosis_lines(report.recent_diagnosis(now_seconds)))
    text += (line.starts_with("hvdrun: ") ? line.substr(8) : line) + "\n";

  std::vector<std::pair<int, const RankSums*>> ranks;
  for (const auto& [rank, sums] : recent.ranks()) ranks.emplace_back(rank, &sums);
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.second->waited / static_cast<double>(a.second->steps) <
           b.second->waited / static_cast<double>(b.second->steps);
  });
  text += "\n RANK  HOST                 STEP      WORK     INPUT    WAITED      DATA  CORES  LAST IN\n";
  for (std::size_t i = 0; i < std::min(ranks.size(), most_ranks); ++i) {
    const auto& [rank, s] = ranks[i];
    const auto n = static_cast<double>(s->steps);
    const double input = s->parts[static_cast<std::size_t>(Delay::input)];
    const auto place = report.places().find(rank);
    text += padded(std::to_string(rank), 5) + "  " +
            padded(printable(place == report.places().end() ? "" : place->second.host), 16, true);
    for (const double seconds : {s->seconds, s->seconds - s->waited - s->moved - input, input, s->waited, s->moved})
      text += padded(duration_text(seconds / n), 10);
    text += padded(s->seconds > 0 ? formatted("{:.1f}", s->cpu / s->seconds) : "", 7);
    text += padded(formatted("{:.0f} %", 100 * static_cast<double>(s->late_steps) / n), 9) + "\n";
  }
  if (ranks.size() > most_ranks) text += formatted("  and {} more, which wait longer\n", ranks.size() - most_ranks);
  return text;
}

}  // namespace hvd::launcher
