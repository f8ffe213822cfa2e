#include "launcher/start/starter_output.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/text.h"

namespace hvd::launcher {

namespace {

bool names_fault(const std::string& line) {
  constexpr std::string_view signs[] = {"refused", "denied", "not found", "No such",  "annot",  "rror",
                                        "ailed",   "unable", "timed out", "No route", "nvalid", "nreachable"};
  return std::any_of(std::begin(signs), std::end(signs), [&](std::string_view s) { return line.find(s) != line.npos; });
}

}  // namespace

std::vector<std::string> telling_lines(const std::string& text, std::size_t most) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) {
    const std::string_view t = trim(line);
    if (std::any_of(t.begin(), t.end(), [](unsigned char c) { return std::isalnum(c); })) lines.emplace_back(t);
  }
  if (lines.size() <= most) return lines;
  // The first lines that name a fault, and the last lines: programs mostly end with advice.
  const std::size_t tail = lines.size() - most / 2;
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (i >= tail || (kept.size() < most - most / 2 && names_fault(lines[i]))) kept.push_back(lines[i]);
  return kept;
}

}  // namespace hvd::launcher
