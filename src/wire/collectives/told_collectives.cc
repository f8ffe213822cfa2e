#include "wire/collectives/told_collectives.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace hvd::wire {

RankNumbers::RankNumbers(const JobCollectives& job) {
  for (const auto& [rank, told] : job)
    if (told.rank >= 0) known_[told.rank] = rank;
}

int RankNumbers::of(int torch_rank) const {
  if (const auto it = known_.find(torch_rank); it != known_.end()) return it->second;
  const auto is_taken = [&](int rank) {
    return std::any_of(known_.begin(), known_.end(), [rank](const auto& one) { return one.second == rank; });
  };
  int rank = torch_rank;
  for (int next = 0; is_taken(rank); ++next) rank = next;
  return rank;
}

std::string at(const std::string& place) { return place.empty() ? "" : " at " + place; }

std::string tensors_text(const CollectiveRecord& r) { return r.tensors.empty() ? "" : " (" + r.tensors + ")"; }

std::string group_text(const CollectiveGroup& group, bool is_default, bool has_twin) {
  if (is_default) return "the default group";
  if (!group.description.empty() && group.description != "undefined") return "group " + group.description;
  if (group.ranks.empty()) return "group " + group.name;
  return (has_twin ? "group " + group.name + " of " : "the group of ") + ranks_text(group.ranks);
}

bool has_twin(const std::vector<CollectiveGroup>& groups, std::size_t index) {
  for (std::size_t g = 1; g < groups.size(); ++g)
    if (g != index && groups[g].ranks == groups[index].ranks) return true;
  return false;
}

const CollectiveRecord* first_open(const RankCollectives& told) {
  for (const CollectiveRecord& r : told.last)
    if (!r.ended && !r.point_to_point) return &r;
  return nullptr;
}

std::string present_place(const RankCollectives& told) {
  if (told.call) return told.call->place;
  return told.last.empty() || told.last.back().ended ? "" : told.last.back().place;
}

bool waits(const RankCollectives& told) { return first_open(told) != nullptr || told.call.has_value(); }

std::string call_text(const RankCollectives& told) {
  const PresentCall& call = *told.call;
  if (call.peer >= 0)
    return call.name + (call.name == "send" ? " to rank " : " from rank ") + std::to_string(call.peer);
  if (call.group <= 0) return call.name;
  const auto group = static_cast<std::size_t>(call.group);
  return call.name + " of " + group_text(told.groups[group], false, has_twin(told.groups, group));
}

std::string open_text(const RankCollectives& told, const CollectiveRecord& r) {
  const auto group = static_cast<std::size_t>(r.group);
  return formatted("{} {} of {}{}{}", r.kind, r.sequence,
                   group_text(told.groups[group], group == 0, has_twin(told.groups, group)), tensors_text(r),
                   at(r.place));
}

namespace {

/// The present or last action of a rank for which other ranks wait.
std::string instead(const RankCollectives& told) {
  if (const CollectiveRecord* open = first_open(told)) return "waits for " + open_text(told, *open) + " instead";
  if (told.call) return formatted("is in {}{} instead", call_text(told), at(told.call->place));
  if (told.last.empty()) return told.torch.empty() ? "has not answered" : "has enqueued nothing";
  return "has not enqueued it; its last was " + open_text(told, told.last.back());
}

}  // namespace

std::vector<std::string> details_of(const Ranks& missing, const JobCollectives& job, bool recorded) {
  std::map<std::string, Ranks> by_text;
  for (const int rank : missing)
    if (const auto it = job.find(rank); it != job.end() && (recorded || waits(it->second)))
      by_text[instead(it->second)].push_back(rank);
  std::vector<std::string> lines;
  for (const auto& [text, ranks] : by_text)
    if (lines.size() < 3) lines.push_back(ranks_text(ranks, text));
  return lines;
}

}  // namespace hvd::wire
