#include "launcher/hang/hang_text.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "launcher/hang/rank_place.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_lines = 4;

std::string place_of(int rank, const Pictures& pictures, const std::vector<int>& ended) {
  if (std::binary_search(ended.begin(), ended.end(), rank)) return "has ended";
  const auto it = pictures.find(rank);
  if (it == pictures.end()) return "does not answer";
  const wire::StackPicture& picture = it->second;
  if (picture.state.empty()) return "has ended";
  const std::string line = user_line(picture.python);
  const std::string at = line.empty() ? "" : " at " + line;
  if (picture.state == "T" || picture.state == "t") return "is stopped" + at + " (kill -CONT lets it go on)";
  if (picture.state == "F") return "is frozen by its cgroup (docker unpause, or its freezer, lets it go on)";
  const std::string work = long_work(picture.python, picture.state);
  const std::string wait = work.empty() && picture.state == "D" ? "waiting for a disk or a device" : work;
  const std::string helpers = helpers_place(picture);
  if (!line.empty())
    return "is in " + line + (wait.empty() ? "" : ", " + wait) + (helpers.empty() ? "" : ", " + helpers) +
           (ends_by_itself(work, picture.state) ? ", which ends by itself" : "");
  return picture.state == "R" ? "runs" : picture.state == "D" ? "waits for a disk or a device" : "waits";
}

/// "is in all_reduce at train.py:8 (step)": the place of a rank that waits.  Empty: not known.
std::string waiting_place(const wire::StackPicture& picture) {
  const std::string line = user_line(picture.python), function = c10d_function(picture.python);
  return line.empty() ? "" : formatted("is{} at {}", function.empty() ? "" : " in " + function, line);
}

/// ": its GPU is still computing grad/layer3, its main thread is in loss.py:88 (forward)".
std::string gpu_place(const std::string& late, const std::string& place) {
  return ": its GPU is still computing " + late + ", its main thread " + place;
}

/// The text of place_of() or gpu_place() for several ranks.
std::string of_many(std::string text) {
  if (!text.starts_with(": its GPU is ")) return plural(text);
  text.replace(0, 12, ": their GPUs are");
  const std::size_t thread = text.find(", its main thread is ");
  if (thread != std::string::npos) text.replace(thread, 20, ", their main threads are");
  return text;
}

std::string named(const std::vector<int>& ranks, const JobMap& map) {
  std::string text = ranks_text(ranks);
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
      return waited + " in " + (i.tensor.empty() ? "hvd.init()" : i.tensor);
    case IncidentKind::operation:
    case IncidentKind::stuck:
    case IncidentKind::late_gpu:
      return formatted("{} for {}{}{}", waited, i.tensor, i.what.empty() ? "" : " (" + i.what + ")",
                       i.tensors > 1 ? " and " + count_of(i.tensors - 1, "more tensor") : "");
    case IncidentKind::end:
      return i.waiting > 0 ? waited + " at the end of the job" : "the others are through since " + time;
    case IncidentKind::leaving:
      return (i.missing.size() == 1 ? "its script has ended " : "their scripts have ended ") + time + " ago";
    case IncidentKind::idle:
      return "no rank has computed or printed for " + time;
    case IncidentKind::stopped:
      break;
  }
  return (i.missing.size() == 1 ? "it has not run for " : "they have not run for ") + time;
}

}  // namespace

std::vector<std::string> hang_lines(const Incident& incident, double seconds, const JobMap& map,
                                    const Pictures& pictures, const std::vector<int>& ended) {
  const std::string wait = who_waits(incident, seconds);
  const std::string link = broken_link(map, pictures);
  std::vector<std::string> lines;
  if (incident.missing.empty() && incident.more == 0 && incident.headline.empty()) {
    lines.push_back("hvdrun: " + wait + (incident.kind == IncidentKind::init ? "" : ", and all have submitted it"));
    if (link.empty() && incident.details.empty()) lines.push_back("        hvdrun stacks shows where they are");
  }
  if (incident.kind == IncidentKind::idle) lines.push_back("hvdrun: " + wait + ":");
  if (!incident.headline.empty()) lines.push_back(formatted("hvdrun: {}; {}", incident.headline, wait));
  std::vector<std::pair<std::string, std::vector<int>>> places;  // in the order of the lowest rank at each place
  for (const int rank : incident.missing) {
    std::string place = place_of(rank, pictures, ended);
    if (const auto late = incident.gpu_late.find(rank); late != incident.gpu_late.end())
      place = gpu_place(late->second, place);
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
    const std::string text = ranks.size() > 1 ? of_many(place) : place;
    lines.push_back(formatted("{}{}{}{}{}", lines.empty() ? "hvdrun: " : "        ", named(ranks, map),
                              text.starts_with(":") ? "" : " ", text, lines.empty() ? "; " + wait : ""));
  }
  if (incident.more) lines.push_back("        and " + count_of(incident.more, "more rank"));
  if (const auto waiter = pictures.find(incident.waiter); waiter != pictures.end())
    if (const std::string place = waiting_place(waiter->second); !place.empty())
      lines.push_back(formatted("        rank {} {}", incident.waiter, place));
  for (const std::string& detail : incident.details) lines.push_back("        " + detail);
  if (!link.empty()) lines.push_back("        " + link + ": the network between them is down");
  return lines;
}

OpenHang hang_data(const Incident& incident, const JobMap& map, const Pictures& pictures) {
  OpenHang hang;
  if (incident.kind == IncidentKind::idle) {
    hang.operation = "no rank computes";
    return hang;
  }
  hang.operation = !incident.headline.empty() ? incident.headline
                   : incident.what.empty()    ? incident.tensor
                                              : incident.tensor + " (" + incident.what + ")";
  hang.link_is_broken = !broken_link(map, pictures).empty();
  if (incident.missing.empty()) return hang;
  hang.rank = incident.missing[0];
  hang.host = map.host_of(hang.rank).name;
  hang.is_stopped = incident.kind == IncidentKind::stopped;
  hang.gpu_is_late = incident.gpu_late.contains(hang.rank);
  if (const auto picture = pictures.find(hang.rank); picture != pictures.end()) {
    const std::string& state = picture->second.state;
    hang.is_stopped = hang.is_stopped || state == "T" || state == "t" || state == "F";
    hang.frame = user_frame(picture->second.python);
  }
  return hang;
}

bool is_worth_telling(const Incident& incident, const Pictures& pictures) {
  return incident.kind != IncidentKind::idle || std::any_of(pictures.begin(), pictures.end(), [](const auto& answer) {
           const auto frame = user_frame(answer.second.python);
           return frame && !wire::is_library(frame->file);
         });
}

std::string closed_line(const Incident& incident, double seconds, const JobMap& map) {
  const bool one = incident.missing.size() == 1;
  const std::string who = incident.missing.empty() ? "the job" : named(incident.missing, map);
  return formatted("hvdrun: {}{} on after {}", who, one || incident.missing.empty() ? " goes" : " go",
                   seconds_text(seconds));
}

std::string given_up(const Incident& incident, double seconds, const JobMap& map) {
  const std::string wait = who_waits(incident, seconds);
  if (incident.missing.empty()) return wait;
  if (incident.kind == IncidentKind::late_gpu)
    return formatted("{}, which the {} of {} not computed", wait, incident.missing.size() == 1 ? "GPU" : "GPUs",
                     named(incident.missing, map) + (incident.missing.size() == 1 ? " has" : " have"));
  return wait + ", but not " + named(incident.missing, map);
}

bool all_at_work(const Incident& incident, const Pictures& pictures) {
  return !incident.missing.empty() && incident.more == 0 && incident.headline.empty() &&
         incident.kind != IncidentKind::late_gpu &&
         std::all_of(incident.missing.begin(), incident.missing.end(), [&](int rank) {
           const auto it = pictures.find(rank);
           return it != pictures.end() && is_at_work(it->second);
         });
}

std::string put_off_line(const Incident& incident, double most_seconds, const JobMap& map) {
  return formatted("hvdrun: {} {} not hang: --stall-check-shutdown-time-seconds waits, {} more at most",
                   named(incident.missing, map), incident.missing.size() == 1 ? "does" : "do",
                   seconds_text(most_seconds));
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
