#include "core/settings/tuned_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/files/trust.h"
#include "base/text.h"

namespace hvd::core {
namespace {

constexpr std::size_t most_file_bytes = 1 << 20;
constexpr std::size_t words_of_form = 3;
constexpr std::int64_t most_hold_ns = 100'000'000;  ///< a longer hold would look like a hang

std::string form_of_line(const std::vector<std::string>& line) {
  return join({line.begin(), line.begin() + static_cast<std::ptrdiff_t>(std::min(line.size(), words_of_form))}, " ");
}

/// Parses "name=value" into @p settings.  False: the word is not a setting.
bool take_setting(const std::string& word, TunedSettings& settings) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "gain") return to_number(value).has_value();
  const auto number = to_integer(value);
  if (!number) return false;
  if (name == "fusion_bytes") return settings.fusion_bytes = *number, true;
  if (name == "hold_ns") return settings.hold_ns = *number, true;
  if (name == "slice_bytes") return settings.slice_bytes = *number, true;
  if (name == "latency_ns") return settings.latency_ns = *number, true;
  return false;
}

}  // namespace

std::string form_of_job(const World& world, const Config& config) {
  return "hosts=" + std::to_string(world.nodes.size()) + " ranks=" + std::to_string(world.size) +
         " transport=" + config.text("HVD_TRANSPORT") + (config.flag("HVD_ENCRYPT_TENSORS") ? " encrypted" : "");
}

std::optional<TunedSettings> settings_in(const std::string& text, const std::string& path, const std::string& form,
                                         const TunedSettings& fallback) {
  std::optional<TunedSettings> found;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::vector<std::string> parts = words(line);
    if (parts.empty() || parts.front().front() == '#' || form_of_line(parts) != form) continue;
    TunedSettings settings = fallback;
    bool good = true;
    for (std::size_t i = words_of_form; i < parts.size(); ++i) good = good && take_setting(parts[i], settings);
    if (!good || !settings.possible() || settings.hold_ns > std::max(most_hold_ns, fallback.hold_ns))
      throw Error(Code::usage, path + ":" + std::to_string(number), "these are no settings of --autotune",
                  "remove the line; the next run finds new values");
    found = settings;
  }
  return found;
}

std::string with_settings(const std::string& text, const std::string& form, const TunedSettings& s, double gain) {
  std::string all;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> parts = words(line);
    if (!parts.empty() && (parts.front().front() == '#' || form_of_line(parts) != form)) all += line + "\n";
  }
  if (all.empty()) all = "# what hvdrun --autotune has found\n";
  char rounded[32];
  std::snprintf(rounded, sizeof rounded, "%.3f", gain);
  return all + form + " fusion_bytes=" + std::to_string(s.fusion_bytes) + " hold_ns=" + std::to_string(s.hold_ns) +
         " slice_bytes=" + std::to_string(s.slice_bytes) + " latency_ns=" + std::to_string(s.latency_ns) +
         " gain=" + rounded + "\n";
}

std::string read_tuned_file(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  return read_trusted(path, most_file_bytes, false);
}

}  // namespace hvd::core
