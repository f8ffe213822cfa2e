#include "wire/collectives/collective_calls.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/format.h"
#include "base/text.h"

namespace hvd::wire {
namespace {

/// The rank to which @p rank sends a message now. -1: none, or that rank waits for no message from @p rank.
int receiver_of(int rank, const JobCollectives& job, const RankNumbers& numbers) {
  const auto calls = [&](const RankCollectives& told, const char* name) {
    return told.call && told.call->name == name && told.call->peer >= 0 && !first_open(told);
  };
  if (!calls(job.at(rank), "send")) return -1;
  const auto other = job.find(numbers.of(job.at(rank).call->peer));
  const bool fits = other != job.end() && calls(other->second, "recv") && numbers.of(other->second.call->peer) == rank;
  return fits ? other->first : -1;
}

/// Adds a difference for each message that does not arrive, although its sender and its receiver are in their calls.
/// Returns these ranks.
std::set<int> add_unmatched_messages(const JobCollectives& job, const RankNumbers& numbers,
                                     std::vector<CollectiveDifference>& found) {
  std::set<int> ranks;
  const auto on = [&](int rank) {
    const RankCollectives& told = job.at(rank);
    const std::string tag = told.call->tag < 0 ? "" : formatted(" (tag {})", told.call->tag);
    return call_text(told) + tag + at(told.call->place) + " on " + ranks_text({rank});
  };
  for (const auto& [rank, told] : job) {
    const int receiver = receiver_of(rank, job, numbers);
    if (receiver < 0) continue;
    CollectiveDifference& d = found.emplace_back();
    d.fault = CollectiveFault::different;
    d.waiting = {rank, receiver};
    d.seconds = std::min(told.call->seconds, job.at(receiver).call->seconds);
    d.what = "a message does not arrive: " + on(rank) + "; " + on(receiver);
    const int tag = told.call->tag, other = job.at(receiver).call->tag;
    d.details.emplace_back(tag >= 0 && other >= 0 && tag != other ? "their tags (tag=) differ"
                                                                  : "their groups or sizes may differ");
    ranks.insert({rank, receiver});
  }
  return ranks;
}

}  // namespace

void add_differences_of_calls(const JobCollectives& job, const RankNumbers& numbers,
                              std::vector<CollectiveDifference>& found) {
  std::map<std::string, CollectiveDifference> by_text;
  const std::set<int> told_already = add_unmatched_messages(job, numbers, found);
  for (const auto& [rank, told] : job) {
    if (!told.call || first_open(told) || told_already.contains(rank)) continue;
    CollectiveDifference& d = by_text[call_text(told)];
    d.what = call_text(told);
    d.waiting.push_back(rank);
    d.seconds = std::max(d.seconds, told.call->seconds);
    std::vector<int> awaited;
    if (told.call->peer >= 0)
      awaited.push_back(numbers.of(told.call->peer));
    else if (told.call->group > 0)
      for (const int member : told.groups[static_cast<std::size_t>(told.call->group)].ranks)
        awaited.push_back(numbers.of(member));
    else
      for (const auto& [other, _] : job) awaited.push_back(other);
    d.missing.insert(d.missing.end(), awaited.begin(), awaited.end());
  }
  for (auto& [text, d] : by_text) {
    const bool to_one = job.at(d.waiting[0]).call->peer >= 0;
    std::sort(d.missing.begin(), d.missing.end());
    d.missing.erase(std::unique(d.missing.begin(), d.missing.end()), d.missing.end());
    if (!to_one)
      std::erase_if(d.missing, [&waiting = d.waiting](int rank) {
        return std::find(waiting.begin(), waiting.end(), rank) != waiting.end();
      });
    if (d.missing.empty()) continue;  // all are in it
    d.details = details_of(d.missing, job, false);
    found.push_back(std::move(d));
  }
}

}  // namespace hvd::wire
