#include "core/status/message_waits.h"

namespace hvd::core {
namespace {

/// Callers wait in short pieces, and other work may delay the next piece.
constexpr std::int64_t between_pieces_ns = 2'000'000'000;

}  // namespace

void MessageWaits::look(const std::vector<AwaitedMessage>& awaited, std::int64_t now_ns) {
  for (const AwaitedMessage& a : awaited) {
    Wait& w = waits_[a.name];
    if (w.handle != a.handle || now_ns - w.seen_ns > between_pieces_ns) w = {a.handle, a.other, now_ns};
    w.seen_ns = now_ns;
    w.is_moving = a.is_moving;
  }
  std::erase_if(waits_, [&](const auto& w) { return now_ns - w.second.seen_ns > between_pieces_ns; });
}

std::int64_t MessageWaits::waited_ns(const std::string& name, std::int64_t now_ns) const {
  const auto found = waits_.find(name);
  return found == waits_.end() || found->second.is_moving ? 0 : now_ns - found->second.since_ns;
}

void MessageWaits::long_waits(std::int64_t now_ns, std::int64_t worth_telling_ns, std::vector<StallReport>& to) const {
  for (const auto& [name, w] : waits_) {
    if (now_ns - w.seen_ns > between_pieces_ns) continue;
    if (const std::int64_t waited = waited_ns(name, now_ns); waited >= worth_telling_ns)
      to.push_back({name, waited, negotiate::RankSet(w.other), 2});
  }
}

std::string MessageWaits::warning(std::int64_t now_ns, std::int64_t warn_ns) {
  std::string text;
  for (auto& [name, w] : waits_) {
    const std::int64_t waited = waited_ns(name, now_ns);
    if (waited < warn_ns || (w.told_ns >= w.since_ns && now_ns - w.told_ns < warn_ns)) continue;
    w.told_ns = now_ns;
    text += "\n  '" + name + "' for " + std::to_string(waited / 1'000'000'000) + " s, not submitted by rank " +
            std::to_string(w.other);
  }
  return text.empty() ? text : "this rank waits for others that have not submitted the same operation:" + text;
}

}  // namespace hvd::core
