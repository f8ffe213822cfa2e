#include "launcher/start/pmix_hub.h"

#include <algorithm>
#include <numeric>

namespace hvd::launcher {

using wire::PmixMessage;
using Kind = PmixMessage::Kind;

PmixHub::PmixHub(std::vector<int> host_of, int hosts)
    : host_of_(std::move(host_of)), hosts_(hosts), lost_(static_cast<std::size_t>(hosts)) {}

PmixHub::Outgoing PmixHub::receive(int from, const PmixMessage& message) {
  switch (message.kind) {
    case Kind::fence:
      return fence(from, message);
    case Kind::request:
      return request(from, message);
    case Kind::published:
      return published(from, message);
    default:
      return {};
  }
}

/// Ascending.  Empty: one of the ranks is none of the job's.
std::vector<int> PmixHub::hosts_of(const std::vector<std::int32_t>& ranks) const {
  std::vector<int> hosts;
  if (ranks.empty()) {
    hosts.resize(static_cast<std::size_t>(hosts_));
    std::iota(hosts.begin(), hosts.end(), 0);
    return hosts;
  }
  for (const std::int32_t rank : ranks) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= host_of_.size()) return {};
    hosts.push_back(host_of_[static_cast<std::size_t>(rank)]);
  }
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

PmixHub::Outgoing PmixHub::fence(int from, const PmixMessage& message) {
  const std::vector<int> hosts = hosts_of(message.ranks);
  if (!std::binary_search(hosts.begin(), hosts.end(), from))
    return {{from, {.kind = Kind::fence_data, .failed = true, .token = message.token}}};

  std::vector<Fence>& queue = fences_[message.ranks];
  auto fence = std::find_if(queue.begin(), queue.end(), [&](const Fence& f) { return !f.arrived.contains(from); });
  if (fence == queue.end()) fence = queue.insert(queue.end(), Fence{.hosts = hosts});
  fence->arrived[from] = {message.token, message.data};
  for (const int host : hosts) fence->failed |= lost_[static_cast<std::size_t>(host)];
  if (!fence->failed && fence->arrived.size() < hosts.size()) return {};

  Outgoing out = finish(*fence);
  if (!fence->failed) queue.erase(fence);
  if (queue.empty()) fences_.erase(message.ranks);
  return out;
}

/// Answers all hosts that have come: with the data of all, or that a host will never come.
PmixHub::Outgoing PmixHub::finish(Fence& fence) {
  std::string all;
  if (!fence.failed)
    for (const auto& [host, part] : fence.arrived) all += part.second;
  Outgoing out;
  for (auto& [host, part] : fence.arrived)
    if (part.first != 0)
      out.push_back({host,
                     {.kind = Kind::fence_data,
                      .failed = fence.failed,
                      .token = std::exchange(part.first, 0),  // each host is answered once
                      .data = all}});
  return out;
}

PmixHub::Outgoing PmixHub::request(int from, const PmixMessage& message) {
  const std::vector<int> hosts = hosts_of({message.rank});
  const PmixMessage no{.kind = Kind::answer, .failed = true, .token = message.token};
  if (hosts.empty() || hosts[0] == from || lost_[static_cast<std::size_t>(hosts[0])]) return {{from, no}};
  questions_[++last_question_] = {from, hosts[0], message.token};
  return {{hosts[0], {.kind = Kind::ask, .rank = message.rank, .token = last_question_}}};
}

PmixHub::Outgoing PmixHub::published(int from, const PmixMessage& message) {
  const auto it = questions_.find(message.token);
  if (it == questions_.end() || it->second.asked != from) return {};
  const Question question = it->second;
  questions_.erase(it);
  return {{question.asker,
           {.kind = Kind::answer, .failed = message.failed, .token = question.token, .data = message.data}}};
}

PmixHub::Outgoing PmixHub::lose(int host) {
  lost_[static_cast<std::size_t>(host)] = true;
  Outgoing out;
  for (auto& [ranks, queue] : fences_)
    for (Fence& fence : queue) {
      if (!std::binary_search(fence.hosts.begin(), fence.hosts.end(), host)) continue;
      fence.failed = true;
      for (auto& one : finish(fence)) out.push_back(std::move(one));
    }
  std::erase_if(questions_, [&](const auto& one) {
    const Question& q = one.second;
    if (q.asked == host) out.push_back({q.asker, {.kind = Kind::answer, .failed = true, .token = q.token}});
    return q.asked == host || q.asker == host;
  });
  std::erase_if(out, [&](const auto& one) { return lost_[static_cast<std::size_t>(one.first)]; });
  return out;
}

}  // namespace hvd::launcher
