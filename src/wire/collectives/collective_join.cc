#include "wire/collectives/collective_join.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "wire/collectives/collective_calls.h"
#include "wire/collectives/told_collectives.h"

namespace hvd::wire {
namespace {

/// True for kinds of collectives with tensors of one size on all ranks.
bool has_one_size(const std::string& kind) {
  for (const char* own : {"alltoall", "all_to_all", "gather", "scatter", "coalesced", "sparse"})
    if (kind.find(own) != std::string::npos && !kind.starts_with("all_gather") && !kind.starts_with("allgather") &&
        !kind.starts_with("reduce_scatter"))
      return false;
  return true;
}

bool is_same(const CollectiveRecord& a, const CollectiveRecord& b) {
  return a.kind == b.kind && (!has_one_size(a.kind) || a.tensors == b.tensors) &&
         (a.root < 0 || b.root < 0 || a.root == b.root);
}

bool has_source(const std::string& kind) { return kind == "broadcast" || kind == "scatter"; }
bool has_root(const std::string& kind) { return has_source(kind) || kind == "reduce" || kind == "gather"; }

/// " from rank 2", " to rank 2"; empty: it has no root, or the root is not known.
std::string root_text(const CollectiveRecord& r) {
  return r.root < 0 ? "" : formatted(" {} rank {}", has_source(r.kind) ? "from" : "to", r.root);
}

/// One group, with the collectives of its members.
struct GroupView {
  CollectiveGroup group;
  bool is_default = false, has_twin = false;  // a twin: another group of the same ranks
  struct GroupMember {
    std::map<std::int64_t, CollectiveRecord> records;  // by number
    std::int64_t last = 0;
  };
  std::map<int, GroupMember> members;  // the ranks that have reported this group

  std::string what(const CollectiveRecord& r) const {
    return formatted("{} {} of {}{}", r.kind, r.sequence, text(), tensors_text(r));
  }
  std::string text() const { return group_text(group, is_default, has_twin); }
};

std::vector<GroupView> group_views(const JobCollectives& job, const RankNumbers& numbers) {
  std::map<std::pair<std::string, Ranks>, GroupView> views;
  for (const auto& [rank, told] : job)
    for (std::size_t g = 0; g < told.groups.size(); ++g) {
      CollectiveGroup group = told.groups[g];
      if (group.ranks.empty()) continue;
      for (int& member : group.ranks) member = numbers.of(member);
      std::sort(group.ranks.begin(), group.ranks.end());
      GroupView& view = views[{group.name, group.ranks}];
      view.group = group;
      view.is_default = g == 0;
      view.has_twin = has_twin(told.groups, g);
      GroupView::GroupMember& member = view.members[rank];
      for (CollectiveRecord r : told.last) {
        if (r.group != static_cast<int>(g) || r.point_to_point) continue;
        if (r.root >= 0) r.root = numbers.of(r.root);
        member.records.emplace(r.sequence, r);  // of a coalesced group the first
        member.last = std::max(member.last, r.sequence);
      }
    }
  std::vector<GroupView> out;
  for (auto& [key, view] : views) out.push_back(std::move(view));
  return out;
}

/// The first number before @p end at which the members were at different lines of code.  At that number a rank skipped
/// a collective.
std::string first_other_line(const GroupView& view, std::int64_t end) {
  std::int64_t first = 0;
  for (const auto& [rank, member] : view.members)
    if (!member.records.empty()) first = std::max(first, member.records.begin()->first);
  for (std::int64_t number = first; number < end; ++number) {
    std::map<std::string, Ranks> places;
    for (const auto& [rank, member] : view.members)
      if (const auto it = member.records.find(number); it != member.records.end() && !it->second.place.empty())
        places[it->second.place].push_back(rank);
    if (places.size() < 2) continue;
    if (number == first) return {};  // the lines may have differed from the beginning
    std::vector<std::string> parts;
    for (const auto& [place, ranks] : places) parts.push_back(ranks_text(ranks) + at(place));
    return formatted("their lines differ from collective {} on: {}", number, join(parts, ", "));
  }
  return {};
}

/// Returns lines like "rank 0 is at train.py:8", for members whose record @p number has no line.
std::vector<std::string> present_places(const GroupView& view, std::int64_t number, const JobCollectives& job) {
  std::map<std::string, Ranks> by_place;
  for (const auto& [rank, member] : view.members) {
    const auto found = member.records.find(number);
    if (found == member.records.end() || !found->second.place.empty()) continue;
    if (std::string place = present_place(job.at(rank)); !place.empty()) by_place[std::move(place)].push_back(rank);
  }
  std::vector<std::string> lines;
  for (const auto& [place, ranks] : by_place)
    if (lines.size() < 3) lines.push_back(ranks_text(ranks, "is now" + at(place)));
  return lines;
}

/// The difference at @p number in @p view; nothing: the members agree.
std::optional<CollectiveDifference> difference_at(const GroupView& view, std::int64_t number,
                                                  const JobCollectives& job) {
  CollectiveDifference d;
  std::map<std::string, Ranks> variants;
  const CollectiveRecord* any = nullptr;
  bool differ = false;
  for (const int rank : view.group.ranks) {
    const auto it = view.members.find(rank);
    if (it == view.members.end() || it->second.last < number) {
      d.missing.push_back(rank);
      continue;
    }
    const auto found = it->second.records.find(number);
    if (found == it->second.records.end()) continue;  // the rank no longer has this record
    const CollectiveRecord& r = found->second;
    differ = differ || (any && !is_same(*any, r));
    if (!any || (any->ended && !r.ended) || (any->root < 0 && r.root >= 0)) any = &r;
    if (!r.ended) d.waiting.push_back(rank), d.seconds = std::max(d.seconds, r.seconds);
    variants[r.kind + tensors_text(r) + root_text(r) + at(r.place)].push_back(rank);
  }
  if (!any || (d.missing.empty() && !differ)) return std::nullopt;
  d.what = view.what(*any);
  for (const int rank : d.waiting) d.usual_seconds = std::max(d.usual_seconds, job.at(rank).longest_gap_seconds);
  if (differ) {
    d.fault = CollectiveFault::different;
    std::vector<std::string> parts;
    std::size_t most = 0;
    for (const auto& [text, ranks] : variants) {
      parts.push_back(text + " on " + ranks_text(ranks));
      most = std::max(most, ranks.size());
    }
    d.what = formatted("the ranks differ at collective {} of {}: {}", number, view.text(), join(parts, "; "));
    for (const auto& [text, ranks] : variants)
      if (ranks.size() < most) d.missing.insert(d.missing.end(), ranks.begin(), ranks.end());
    std::sort(d.missing.begin(), d.missing.end());
    d.details = present_places(view, number, job);
    return d;
  }
  d.details = details_of(d.missing, job, true);
  if (std::string other = first_other_line(view, number); !other.empty()) d.details.push_back(std::move(other));
  return d;
}

/// Returns the difference "stuck": all members have enqueued collective @p number, and none has completed it.  Nothing:
/// this is not the case.
std::optional<CollectiveDifference> stuck_at(const GroupView& view, std::int64_t number, const JobCollectives& job) {
  CollectiveDifference d;
  d.fault = CollectiveFault::stuck;
  d.waiting = view.group.ranks;
  std::map<std::string, Ranks> places;
  const CollectiveRecord* any = nullptr;
  bool roots_are_known = true;
  for (const int rank : view.group.ranks) {
    const auto member = view.members.find(rank);
    if (member == view.members.end()) return {};
    const auto found = member->second.records.find(number);
    if (found == member->second.records.end() || found->second.ended) return {};
    const CollectiveRecord& r = found->second;
    if (!r.at_once) d.fault = CollectiveFault::queued;
    d.seconds = any ? std::min(d.seconds, r.seconds) : r.seconds;
    d.usual_seconds = std::max(d.usual_seconds, job.at(rank).longest_gap_seconds);
    if (std::string place = r.place.empty() ? present_place(job.at(rank)) : r.place; !place.empty())
      places[std::move(place)].push_back(rank);
    roots_are_known &= r.root >= 0;
    any = &r;
  }
  if (!any || view.group.ranks.size() < 2) return {};
  d.what = view.what(*any);
  for (const auto& [place, ranks] : places)
    if (d.details.size() < 3) d.details.push_back(ranks_text(ranks, "is" + at(place)));
  if (has_root(any->kind) && !roots_are_known)
    d.details.emplace_back(has_source(any->kind) ? "different sources (src=) on the ranks look like this"
                                                 : "different destinations (dst=) on the ranks look like this");
  if (d.fault == CollectiveFault::queued)
    d.details.emplace_back("their GPUs still compute, or the exchange does not end; NCCL_DEBUG=INFO tells more");
  return d;
}

std::optional<CollectiveDifference> difference_of(const GroupView& view, const JobCollectives& job) {
  std::set<std::int64_t> open;
  for (const auto& [rank, member] : view.members)
    for (const auto& [number, r] : member.records)
      if (!r.ended) open.insert(number);
  for (const std::int64_t number : open)
    if (auto d = difference_at(view, number, job)) return d;
  return open.empty() ? std::nullopt : stuck_at(view, *open.begin(), job);
}

}  // namespace

std::vector<CollectiveDifference> collective_differences(const JobCollectives& job) {
  const RankNumbers numbers(job);
  std::vector<CollectiveDifference> found;
  for (const GroupView& view : group_views(job, numbers))
    if (auto d = difference_of(view, job)) found.push_back(std::move(*d));
  add_differences_of_calls(job, numbers, found);
  // Ranks that wait themselves are not the cause.  The ranks for which they wait are.
  const auto is_cause = [&](const CollectiveDifference& d) {
    return d.fault == CollectiveFault::different || std::any_of(d.missing.begin(), d.missing.end(), [&](int rank) {
             const auto it = job.find(rank);
             return it == job.end() || !waits(it->second);
           });
  };
  const auto is_stuck = [](const CollectiveDifference& d) {
    return d.fault == CollectiveFault::stuck || d.fault == CollectiveFault::queued;
  };
  if (std::any_of(found.begin(), found.end(), is_cause)) {
    std::erase_if(found, [&](const CollectiveDifference& d) { return !is_cause(d); });
    for (CollectiveDifference& d : found)
      if (d.fault == CollectiveFault::missing)
        std::erase_if(d.missing, [&](int rank) {
          const auto it = job.find(rank);
          return it != job.end() && waits(it->second);
        });
  } else if (std::any_of(found.begin(), found.end(), is_stuck)) {
    std::erase_if(found, [&](const CollectiveDifference& d) { return !is_stuck(d); });
  } else {
    for (CollectiveDifference& d : found) d.fault = CollectiveFault::cycle;
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return found;
}

std::vector<std::string> difference_lines(const std::vector<CollectiveDifference>& differences) {
  std::vector<std::string> lines;
  for (const CollectiveDifference& d : differences) {
    if (d.fault == CollectiveFault::different)
      lines.push_back(d.what);
    else if (d.fault == CollectiveFault::stuck || d.fault == CollectiveFault::queued)
      lines.push_back(ranks_text(d.waiting, "waits for " + d.what) + ", and all have enqueued it");
    else if (!d.missing.empty())
      lines.push_back(ranks_text(d.missing, "has not enqueued " + d.what) + "; " +
                      ranks_text(d.waiting, "waits for it"));
    lines.insert(lines.end(), d.details.begin(), d.details.end());
  }
  if (!differences.empty() && differences[0].fault == CollectiveFault::cycle)
    lines.emplace_back("these ranks wait for each other");
  return lines;
}

std::string collectives_text(const RankCollectives& told, std::size_t most) {
  std::string out;
  std::vector<const CollectiveRecord*> ended, open;
  for (const CollectiveRecord& r : told.last) (r.ended ? ended : open).push_back(&r);
  for (std::size_t i = ended.size() > most ? ended.size() - most : 0; i < ended.size(); ++i)
    out += formatted("  began {:.3f} s ago, has ended: {}\n", ended[i]->seconds, open_text(told, *ended[i]));
  for (std::size_t i = 0; i < std::min(most, open.size()); ++i)
    out += formatted("  waits for {:.3f} s: {}\n", open[i]->seconds, open_text(told, *open[i]));
  if (open.empty() && told.call) out += formatted("  is in {}{}\n", call_text(told), at(told.call->place));
  if (told.init)
    out += formatted("  is in init_process_group(){} for {:.3f} s\n", at(told.init->place), told.init->seconds);
  if (out.empty() && told.torch.empty()) out = "  has not answered what it does in torch.distributed\n";
  return out;
}

}  // namespace hvd::wire
