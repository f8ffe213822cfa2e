#include "launcher/supervise/hang.h"

#include <algorithm>

#include "base/text.h"
#include "wire/json.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_lines = 4, most_tensor_bytes = 200;

/// One line of faulthandler: `  File "/a/b.py", line 8 in step`.
struct Frame {
  std::string file, line, function;
};

bool parse(const std::string& text, Frame* frame) {
  constexpr std::string_view begin = "  File \"", middle = "\", line ", in = " in ";
  const std::size_t file_end = text.find(middle);
  if (!text.starts_with(begin) || file_end == std::string::npos) return false;
  const std::size_t line_begin = file_end + middle.size(), line_end = text.find(in, line_begin);
  if (line_end == std::string::npos) return false;
  *frame = {text.substr(begin.size(), file_end - begin.size()), text.substr(line_begin, line_end - line_begin),
            text.substr(line_end + in.size())};
  return true;
}

/// Not what the user wrote: the standard library, installed packages, ours.
bool is_library(const std::string& file) {
  for (const char* part : {"/site-packages/", "/dist-packages/", "/lib/python3", "/hvd/", "/horovod/", "<frozen "})
    if (file.find(part) != std::string::npos) return true;
  return false;
}

std::string place_of(int rank, const Pictures& pictures, const std::vector<int>& ended) {
  if (std::binary_search(ended.begin(), ended.end(), rank)) return "has ended";
  const auto it = pictures.find(rank);
  if (it == pictures.end()) return "does not answer";
  const wire::StackPicture& picture = it->second;
  if (picture.state.empty()) return "has ended";
  if (picture.state == "T" || picture.state == "t") return "is stopped (kill -CONT lets it go on)";
  const std::string line = user_line(picture.python);
  if (!line.empty()) return "is in " + line;
  return picture.state == "R" ? "runs" : picture.state == "D" ? "waits for a disk or a device" : "waits";
}

std::string named(const std::vector<int>& ranks, const Plan& plan) {
  std::string text = (ranks.size() == 1 ? "rank " : "ranks ") + ranges(ranks);
  const std::string& host = plan.host_of(ranks[0]).name;
  const bool one_host = std::all_of(ranks.begin(), ranks.end(), [&](int r) { return plan.host_of(r).name == host; });
  return one_host ? text + " on " + host : text;
}

}  // namespace

Stall stall_from_json(const std::string& text, int size) {
  const wire::Json json = wire::parse_object(text, "stall");
  const wire::Fields f(json, "stall");
  Stall stall;
  stall.tensor = f.bytes("tensor").substr(0, most_tensor_bytes);
  for (char& c : stall.tensor)
    if (static_cast<unsigned char>(c) < 32) c = '?';  // it goes to a terminal
  stall.waited_seconds = f.number("waited_seconds", 0, 1e9);
  stall.missing = f.integers("missing", 0, size - 1);
  std::sort(stall.missing.begin(), stall.missing.end());
  stall.size = f.has("size") ? static_cast<int>(f.integer("size", 1, size)) : size;
  if (f.has("more")) stall.more = static_cast<int>(f.integer("more", 0, size));
  return stall;
}

std::string user_line(const std::string& python) {
  std::vector<Frame> frames;
  bool in_main = false;
  for (const std::string& line : split(python, '\n')) {
    if (line.starts_with("Current thread") || line.starts_with("Thread"))
      in_main = line.starts_with("Current thread");
    else if (Frame frame; in_main && parse(line, &frame))
      frames.push_back(frame);
  }
  if (frames.empty()) return {};
  auto own = std::find_if(frames.begin(), frames.end(), [](const Frame& f) { return !is_library(f.file); });
  if (own == frames.end()) own = frames.begin();
  const std::string name = own->file.substr(own->file.rfind('/') + 1) + ":" + own->line;
  return own->function == "<module>" ? name : name + " (" + own->function + ")";
}

std::vector<std::string> hang_lines(const Stall& stall, const Plan& plan, const Pictures& pictures,
                                    const std::vector<int>& ended) {
  std::vector<std::pair<std::string, std::vector<int>>> places;  // in the order of their lowest rank
  for (const int rank : stall.missing) {
    const std::string place = place_of(rank, pictures, ended);
    const auto same = std::find_if(places.begin(), places.end(), [&](const auto& p) { return p.first == place; });
    if (same == places.end())
      places.push_back({place, {rank}});
    else
      same->second.push_back(rank);
  }
  const long long waiting = stall.size - static_cast<long long>(stall.missing.size()) - stall.more;
  char since[32];
  std::snprintf(since, sizeof since, "%.0f s", stall.waited_seconds);
  const std::string wait =
      count_of(waiting, "rank") + (waiting == 1 ? " has waited " : " have waited ") + since + " for " + stall.tensor;
  std::vector<std::string> lines;
  for (const auto& [place, ranks] : places) {
    if (lines.size() == most_lines) {
      lines.push_back("        and more ranks elsewhere");
      break;
    }
    std::string text = place;
    if (ranks.size() > 1 && text.starts_with("is ")) text.replace(0, 2, "are");
    if (ranks.size() > 1 && text.starts_with("has ")) text.replace(0, 3, "have");
    lines.push_back((lines.empty() ? "hvdrun: " : "        ") + named(ranks, plan) + " " + text +
                    (lines.empty() ? "; " + wait : ""));
  }
  if (stall.more) lines.push_back("        and " + count_of(stall.more, "more rank"));
  return lines;
}

}  // namespace hvd::launcher
