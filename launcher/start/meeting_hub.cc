#include "launcher/start/meeting_hub.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "wire/channel/channel.h"

namespace hvd::launcher {

using wire::MeetingMessage;
using MeetingKind = MeetingMessage::Kind;

namespace {

std::string name(std::int32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

MeetingHub::MeetingHub(std::vector<int> host_of)
    : host_of_(std::move(host_of)), ended_(host_of_.size()), invited_(host_of_.size()) {
  std::iota(invited_.begin(), invited_.end(), 0);
}

MeetingHub::Answers MeetingHub::receive(int from, const MeetingMessage& m) {
  if (m.rank < 0 || static_cast<std::size_t>(m.rank) >= host_of_.size()) return {};
  if (host_of_[static_cast<std::size_t>(m.rank)] != from) return {};
  if (m.kind == MeetingKind::join) return join(m);
  if (m.kind == MeetingKind::withdraw) return withdraw(m);
  return {};
}

std::string MeetingHub::nonsense(std::int32_t rank, const Ranks& ranks) const {
  std::set<std::int32_t> seen;
  for (const std::int32_t r : ranks) {
    if (r < 0 || static_cast<std::size_t>(r) >= host_of_.size()) return "there is no " + name(r) + " in this launch";
    if (!seen.insert(r).second) return name(r) + " is given twice";
  }
  if (!seen.contains(rank)) return name(rank) + " of the launch is not among the given ranks";
  return "";
}

MeetingHub::Answers MeetingHub::join(const MeetingMessage& m) {
  forget(m.rank);  // a rank that joins again has given up its earlier request
  const Gathering alone{{m.rank, {m.token, m.text}}};
  if (dismissed_.contains(m.rank)) return {refuse(alone, static_cast<int>(Code::unavailable), wire::not_needed)};
  const Ranks& ranks = participants(m.ranks);
  if (holds_ && m.ranks.empty()) {
    gatherings_[m.ranks].insert(*alone.begin());
    place_[m.rank] = m.ranks;
    return complete(m.ranks);
  }
  if (const std::string why = nonsense(m.rank, ranks); !why.empty())
    return {refuse(alone, static_cast<int>(Code::usage), why)};
  for (const std::int32_t r : ranks)
    if (const std::string& why = ended_[static_cast<std::size_t>(r)]; !why.empty())
      return {refuse(alone, static_cast<int>(Code::peer_lost), why)};
  gatherings_[m.ranks].insert(*alone.begin());
  place_[m.rank] = m.ranks;
  return complete(m.ranks);
}

MeetingHub::Answers MeetingHub::withdraw(const MeetingMessage& m) {
  const auto place = place_.find(m.rank);
  if (place == place_.end()) return {};
  const Ranks key = place->second;
  const Gathering here = gatherings_.at(key);
  if (here.at(m.rank).token != m.token) return {};  // it withdraws an earlier request
  std::int32_t missing = 0, first = -1;
  for (const std::int32_t r : participants(key))
    if (!here.contains(r) && missing++ == 0) first = r;
  forget(m.rank);
  return {refuse({*here.find(m.rank)}, static_cast<int>(Code::timeout),
                 "waited too long for " + std::to_string(missing) + " rank(s) to join, first " + name(first))};
}

MeetingHub::Answers MeetingHub::complete(const Ranks& key) {
  const auto gathering = gatherings_.find(key);
  if (gathering == gatherings_.end()) return {};
  const Ranks& ranks = participants(key);
  if (ranks.empty()) return {};
  if (!std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t r) { return gathering->second.contains(r); }))
    return {};
  MeetingAnswer answer{{}, {.kind = MeetingKind::world, .epoch = ++epoch_}};
  std::set<int> hosts;
  std::size_t bytes = 0;
  Gathering here = std::move(gathering->second);
  gatherings_.erase(gathering);
  if (key.empty() && holds_)
    for (const auto& [rank, request] : here)
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) gatherings_[{}][rank] = request;
  for (const std::int32_t r : ranks) {
    const int host = host_of_[static_cast<std::size_t>(r)];
    const JoinRequest& request = here.at(r);
    hosts.insert(host);
    bytes += request.text.size() + 64;
    answer.message.members.push_back({r, host, request.token, request.text});
    place_.erase(r);
    world_of_[r] = epoch_;
  }
  if (bytes > wire::max_frame_bytes)
    return {refuse(here, static_cast<int>(Code::unavailable),
                   "the addresses of " + std::to_string(ranks.size()) + " ranks need " + std::to_string(bytes >> 20) +
                       " MiB; a message holds 4 MiB")};
  answer.hosts.assign(hosts.begin(), hosts.end());
  return {std::move(answer)};
}

MeetingAnswer MeetingHub::refuse(const Gathering& who, int code, const std::string& why) const {
  MeetingAnswer answer{{}, {.kind = MeetingKind::refused, .code = code, .text = why}};
  std::set<int> hosts;
  for (const auto& [rank, request] : who) {
    const int host = host_of_[static_cast<std::size_t>(rank)];
    hosts.insert(host);
    answer.message.members.push_back({rank, host, request.token, {}});
  }
  answer.hosts.assign(hosts.begin(), hosts.end());
  return answer;
}

MeetingHub::Answers MeetingHub::revoke(int rank, const std::string& why) {
  const auto died_in = world_of_.find(rank);
  if (died_in == world_of_.end()) return {};
  const std::uint64_t epoch = died_in->second;
  world_of_.erase(died_in);
  Gathering members;
  for (const auto& [member, its] : world_of_)
    if (its == epoch && ended_[static_cast<std::size_t>(member)].empty()) members[member] = {};
  if (members.empty()) return {};
  MeetingAnswer answer = refuse(members, static_cast<int>(Code::peer_lost), why);
  answer.message.kind = MeetingKind::revoked;
  answer.message.epoch = epoch;
  return {std::move(answer)};
}

void MeetingHub::forget(std::int32_t rank) {
  const auto place = place_.find(rank);
  if (place == place_.end()) return;
  const auto gathering = gatherings_.find(place->second);
  gathering->second.erase(rank);
  if (gathering->second.empty()) gatherings_.erase(gathering);
  place_.erase(place);
}

MeetingHub::Answers MeetingHub::end(int rank, const std::string& why) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= ended_.size()) return {};
  std::string& ended = ended_[static_cast<std::size_t>(rank)];
  if (!ended.empty()) return {};
  ended = why;
  forget(rank);
  Answers answers;
  std::erase_if(gatherings_, [&](const auto& one) {
    const Ranks& ranks = participants(one.first);
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return false;
    answers.push_back(refuse(one.second, static_cast<int>(Code::peer_lost), why));
    for (const auto& [waits, request] : one.second) place_.erase(waits);
    return true;
  });
  return answers;
}

MeetingHub::Answers MeetingHub::invite(Ranks ranks) {
  invited_ = std::move(ranks);
  const auto all = gatherings_.find({});
  if (all == gatherings_.end()) return {};
  Gathering strangers;
  for (const auto& [rank, request] : all->second)
    if (std::find(invited_.begin(), invited_.end(), rank) == invited_.end()) strangers[rank] = request;
  if (!holds_)
    for (const auto& [rank, request] : strangers) forget(rank);
  Answers answers = complete({});
  for (const std::int32_t r : invited_) {
    const std::string& why = ended_[static_cast<std::size_t>(r)];
    const auto waiting = gatherings_.find({});
    if (why.empty() || waiting == gatherings_.end()) continue;
    answers.push_back(refuse(waiting->second, static_cast<int>(Code::peer_lost), why));
    for (const auto& [rank, request] : waiting->second) place_.erase(rank);
    gatherings_.erase(waiting);
  }
  if (!strangers.empty() && !holds_)
    answers.push_back(refuse(strangers, static_cast<int>(Code::unavailable), "this rank is not in the next world"));
  return answers;
}

void MeetingHub::add(int host) {
  host_of_.push_back(host);
  ended_.emplace_back();
}

MeetingHub::Answers MeetingHub::dismiss(int rank) {
  dismissed_.insert(rank);
  const auto place = place_.find(rank);
  if (place == place_.end()) return {};
  const JoinRequest request = gatherings_.at(place->second).at(rank);
  forget(rank);
  return {refuse({{rank, request}}, static_cast<int>(Code::unavailable), wire::not_needed)};
}

MeetingHub::Answers MeetingHub::tell_expected(const MeetingMessage& asked, const Ranks& next) const {
  const JoinRequest request{asked.token, {}};
  if (dismissed_.contains(asked.rank))
    return {refuse({{asked.rank, request}}, static_cast<int>(Code::unavailable), wire::not_needed)};
  MeetingAnswer answer = refuse({{asked.rank, request}}, 0, "");
  answer.message.kind = MeetingKind::expected;
  for (const std::int32_t r : next) {
    if (r == asked.rank) answer.message.rank = static_cast<std::int32_t>(answer.message.ranks.size());
    answer.message.ranks.push_back(host_of_[static_cast<std::size_t>(r)]);
  }
  return {std::move(answer)};
}

}  // namespace hvd::launcher
