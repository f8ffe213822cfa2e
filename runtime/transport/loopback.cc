/// @file loopback.cc — mailboxes under one lock.
#include "transport/loopback.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "memory/futex.h"

namespace hvd::transport {

class Loopback final : public Transport {
 public:
  Loopback(std::shared_ptr<LoopbackWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->hosts_.size()); }
  const std::vector<int>& host_of() const override { return world_->hosts_; }
  bool threads_multiple() const override { return true; }

  Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) override {
    std::lock_guard lock(world_->mutex_);
    world_->mail_[{to, rank_, static_cast<int>(tag)}].push_back(
        {std::string(static_cast<const char*>(data), bytes), world_->due()});
    return 0;
  }

  Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) override {
    receives_[++last_] = {from, tag, data, bytes};
    return last_;
  }

  bool test(Ticket ticket) override {
    auto it = receives_.find(ticket);
    if (it == receives_.end()) return true;
    // Messages of one (sender, tag) go to the receives in the order in which those were posted.
    for (const auto& [earlier, r] : receives_)
      if (earlier < ticket && r.from == it->second.from && r.tag == it->second.tag) return false;
    std::lock_guard lock(world_->mutex_);
    auto& box = world_->mail_[{rank_, it->second.from, static_cast<int>(it->second.tag)}];
    if (!world_->arrived(box)) return false;
    if (box.front().body.size() != it->second.bytes)
      throw Error(Code::internal, "loopback", "a message has another length than its receive");
    std::memcpy(it->second.data, box.front().body.data(), it->second.bytes);
    box.pop_front();
    receives_.erase(it);
    return true;
  }

  void abandon(Ticket ticket) override { receives_.erase(ticket); }

  std::optional<Message> poll(Tag tag) override {
    std::lock_guard lock(world_->mutex_);
    for (int from = 0; from < size(); ++from) {
      auto it = world_->mail_.find({rank_, from, static_cast<int>(tag)});
      if (it == world_->mail_.end() || !world_->arrived(it->second)) continue;
      Message m{from, std::move(it->second.front().body)};
      it->second.pop_front();
      return m;
    }
    return std::nullopt;
  }

  std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) override {
    std::lock_guard lock(world_->mutex_);
    auto& known = world_->memory_[{members.front(), shared_++}];
    if (auto p = known.lock()) return p;
    const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
    void* p = std::aligned_alloc(4096, rounded);
    if (!p) throw std::bad_alloc();
    std::memset(p, 0, rounded);
    std::shared_ptr<void> owned(p, std::free);
    known = owned;
    return owned;
  }

 private:
  struct Receive {
    int from;
    Tag tag;
    void* data;
    std::size_t bytes;
  };
  std::shared_ptr<LoopbackWorld> world_;
  int rank_;
  int shared_ = 0;
  Ticket last_ = 0;
  std::map<Ticket, Receive> receives_;
};

void LoopbackWorld::delay(unsigned seed, std::int64_t most_ns) {
  std::lock_guard lock(mutex_);
  random_.seed(seed);
  most_ns_ = most_ns;
}

/// Under mutex_.
bool LoopbackWorld::arrived(const std::deque<Letter>& box) const {
  return !box.empty() && (box.front().due_ns == 0 || memory::now_ns() >= box.front().due_ns);
}

/// Under mutex_.
std::int64_t LoopbackWorld::due() {
  return most_ns_ > 0 ? memory::now_ns() + static_cast<std::int64_t>(random_() % static_cast<unsigned>(most_ns_)) : 0;
}

std::unique_ptr<Transport> LoopbackWorld::open(int rank) {
  return std::make_unique<Loopback>(shared_from_this(), rank);
}

}  // namespace hvd::transport
