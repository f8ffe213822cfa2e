#include "relayed_frame.h"

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "wire/messages/message.h"

namespace hvd::wire {

namespace {

constexpr auto relayed_type = static_cast<std::uint16_t>(Type::relayed);

class RelayedListener : public Listener {
 public:
  explicit RelayedListener(std::unique_ptr<Listener> daemons) : daemons_(std::move(daemons)) {}

  std::vector<std::string> addresses() const override { return daemons_->addresses(); }
  int fd() const override { return daemons_->fd(); }
  std::optional<Move> moved() override { return daemons_->moved(); }
  std::vector<std::string> lost_networks(const PeerId& gone) const override { return daemons_->lost_networks(gone); }
  bool awaits_paths() const override { return daemons_->awaits_paths(); }

  std::optional<PeerFrame> receive() override {
    while (auto received = daemons_->receive()) {
      if (received->frame.type != relayed_type) return received;
      auto inner = from_relayed(received->frame.body);
      if (!inner) continue;
      const PeerId guard = received->from + "/" + std::to_string(inner->rank);
      if (inner->frame.type == guard_has_ended) {
        if (guards_.erase(guard) > 0) gone_.push_back(guard);
        continue;
      }
      if (guards_.try_emplace(guard, Guard{received->from, inner->rank}).second)
        guards_of_[received->from].push_back(guard);
      return PeerFrame{guard, std::move(inner->frame)};
    }
    return std::nullopt;
  }

  bool send(const PeerId& to, const Frame& frame) override {
    const auto guard = guards_.find(to);
    if (guard != guards_.end()) return daemons_->send(guard->second.daemon, relayed(guard->second.rank, frame));
    return daemons_->send(to, frame);  // throws for the name of a guard that has ended: no daemon has this name
  }

  std::optional<PeerId> gone() override {
    while (auto peer = daemons_->gone()) {
      if (const auto behind = guards_of_.find(*peer); behind != guards_of_.end()) {
        for (const PeerId& guard : behind->second)
          if (guards_.erase(guard) > 0) gone_.push_back(guard);
        guards_of_.erase(behind);
      }
      gone_.push_back(std::move(*peer));
    }
    if (gone_.empty()) return std::nullopt;
    PeerId first = std::move(gone_.front());
    gone_.pop_front();
    return first;
  }

 private:
  struct Guard {
    PeerId daemon;
    std::uint32_t rank = 0;
  };

  std::unique_ptr<Listener> daemons_;
  std::unordered_map<PeerId, Guard> guards_;
  std::unordered_map<PeerId, std::vector<PeerId>> guards_of_;  ///< by daemon; some have ended
  std::deque<PeerId> gone_;
};

}  // namespace

Frame relayed(std::uint32_t rank, const Frame& frame) {
  std::string body;
  body.reserve(relay_header_bytes + frame.body.size());
  for (int shift = 0; shift < 32; shift += 8) body += static_cast<char>(rank >> shift & 0xff);
  for (int shift = 0; shift < 16; shift += 8) body += static_cast<char>(frame.type >> shift & 0xff);
  body += frame.body;
  return {relayed_type, std::move(body)};
}

std::optional<RelayedFrame> from_relayed(std::string_view body) {
  if (body.size() < relay_header_bytes) return std::nullopt;
  const auto byte = [body](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(body[at])); };
  const auto type = static_cast<std::uint16_t>(byte(4) | byte(5) << 8);
  return RelayedFrame{byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24,
                      {type, std::string(body.substr(relay_header_bytes))}};
}

std::unique_ptr<Listener> with_relays(std::unique_ptr<Listener> listener) {
  return std::make_unique<RelayedListener>(std::move(listener));
}

}  // namespace hvd::wire
