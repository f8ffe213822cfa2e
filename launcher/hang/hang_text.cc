#include "launcher/hang/hang_text.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_lines = 4;

/// One line of faulthandler: `  File "/a/b.py", line 8 in step`.
struct PythonFrame {
  std::string file, line, function;
};

bool parse(const std::string& text, PythonFrame* frame) {
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

std::string named(const std::vector<int>& ranks, const JobMap& map) {
  std::string text = (ranks.size() == 1 ? "rank " : "ranks ") + ranges(ranks);
  const std::string& host = map.host_of(ranks[0]).name;
  const bool one_host = std::all_of(ranks.begin(), ranks.end(), [&](int r) { return map.host_of(r).name == host; });
  return one_host ? text + " on " + host : text;
}

std::string seconds_text(double seconds) { return formatted("{:.0f} s", seconds); }

/// "3 ranks have waited 5 s for grad and 2 more tensors".
std::string who_waits(const Incident& i, double seconds) {
  const std::string time = seconds_text(seconds);
  const std::string waited = count_of(i.waiting, "rank") + (i.waiting == 1 ? " has waited " : " have waited ") + time;
  switch (i.kind) {
    case IncidentKind::init:
      return waited + " in hvd.init()";
    case IncidentKind::operation:
    case IncidentKind::stuck:
      return formatted("{} for {}{}", waited, i.tensor,
                       i.tensors > 1 ? " and " + count_of(i.tensors - 1, "more tensor") : "");
    case IncidentKind::end:
      return i.waiting > 0 ? waited + " at the end of the job" : "the others are through since " + time;
    case IncidentKind::leaving:
      return (i.missing.size() == 1 ? "its script has ended " : "their scripts have ended ") + time + " ago";
    case IncidentKind::stopped:
      break;
  }
  return (i.missing.size() == 1 ? "it has not run for " : "they have not run for ") + time;
}

}  // namespace

std::string user_line(const std::string& python) {
  std::vector<PythonFrame> frames;
  bool in_main = false;
  for (const std::string& line : split(python, '\n')) {
    if (line.starts_with("Current thread") || line.starts_with("Thread"))
      in_main = line.starts_with("Current thread");
    else if (PythonFrame frame; in_main && parse(line, &frame))
      frames.push_back(frame);
  }
  if (frames.empty()) return {};
  auto own = std::find_if(frames.begin(), frames.end(), [](const PythonFrame& f) { return !is_library(f.file); });
  if (own == frames.end()) own = frames.begin();
  const std::string name = own->file.substr(own->file.rfind('/') + 1) + ":" + own->line;
  return own->function == "<module>" ? name : formatted("{} ({})", name, own->function);
}

std::vector<std::string> hang_lines(const Incident& incident, double seconds, const JobMap& map,
                                    const Pictures& pictures, const std::vector<int>& ended) {
  const std::string wait = who_waits(incident, seconds);
  const std::string link = broken_link(map, pictures);
  std::vector<std::string> lines;
  if (incident.missing.empty() && incident.more == 0) {
    lines.push_back("hvdrun: " + wait + (incident.kind == IncidentKind::init ? "" : ", and all have submitted it"));
    if (link.empty()) lines.push_back("        hvdrun stacks shows where they are");
  }
  std::vector<std::pair<std::string, std::vector<int>>> places;  // in the order of their lowest rank
  for (const int rank : incident.missing) {
    const std::string place = place_of(rank, pictures, ended);
    const auto same = std::find_if(places.begin(), places.end(), [&](const auto& p) { return p.first == place; });
    if (same == places.end())
      places.push_back({place, {rank}});
    else
      same->second.push_back(rank);
  }
  for (const auto& [place, ranks] : places) {
    if (lines.size() == most_lines) {
      lines.push_back("        and more ranks elsewhere");
      break;
    }
    std::string text = place;
    if (ranks.size() > 1 && text.starts_with("is ")) text.replace(0, 2, "are");
    if (ranks.size() > 1 && text.starts_with("has ")) text.replace(0, 3, "have");
    lines.push_back(formatted("{}{} {}{}", lines.empty() ? "hvdrun: " : "        ", named(ranks, map), text,
                              lines.empty() ? "; " + wait : ""));
  }
  if (incident.more) lines.push_back("        and " + count_of(incident.more, "more rank"));
  if (!link.empty()) lines.push_back("        " + link + ": the network between them is down");
  return lines;
}

std::string closed_line(const Incident& incident, double seconds, const JobMap& map) {
  const bool one = incident.missing.size() == 1;
  const std::string who = incident.missing.empty() ? "the job" : named(incident.missing, map);
  return formatted("hvdrun: {}{} on after {}", who, one || incident.missing.empty() ? " goes" : " go",
                   seconds_text(seconds));
}

std::string given_up(const Incident& incident, double seconds, const JobMap& map) {
  const std::string wait = who_waits(incident, seconds);
  return incident.missing.empty() ? wait : wait + ", but not " + named(incident.missing, map);
}

std::string broken_link(const JobMap& map, const Pictures& pictures) {
  std::map<std::string, std::string> host_at;  // by address
  for (const auto& [rank, picture] : pictures)
    for (const std::string& address : picture.addresses) host_at.emplace(address, map.host_of(rank).name);
  for (const auto& [rank, picture] : pictures)
    for (const std::string& address : picture.unanswered) {
      const auto peer = host_at.find(address);
      return map.host_of(rank).name + " gets no answer from " + (peer == host_at.end() ? address : peer->second);
    }
  return {};
}

}  // namespace hvd::launcher
