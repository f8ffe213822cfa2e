/// @file loopback.cc — message queues under one lock.
#include "transport/loopback.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

#include "base/error.h"
#include "memory/futex.h"

namespace hvd::transport {

class Loopback final : public Transport {
 public:
  /// @p members: [size] ranks of the world.  @p rank: the index of this rank in @p members.
  Loopback(std::shared_ptr<LoopbackWorld> world, std::vector<int> members, int rank, int stream)
      : world_(std::move(world)), members_(std::move(members)), rank_(rank), stream_(stream) {
    for (int m : members_) hosts_.push_back(world_->hosts_[static_cast<std::size_t>(m)]);
  }
  /// Deletes messages to this rank and stream that were not received, and entries of freed memory.
  ~Loopback() override {
    std::lock_guard lock(world_->mutex_);
    std::erase_if(world_->mail_, [this](const auto& box) {
      return std::get<0>(box.first) == member(rank_) && std::get<2>(box.first) == stream_;
    });
    std::erase_if(world_->memory_, [](const auto& memory) { return memory.second.expired(); });
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::vector<int>& host_of() const override { return hosts_; }
  bool threads_multiple() const override { return true; }

  Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) override {
    std::lock_guard lock(world_->mutex_);
    world_->mail_[key(to, rank_, tag)].push_back({std::string(static_cast<const char*>(data), bytes), world_->due()});
    return 0;
  }

  Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) override {
    receives_[++last_] = {from, tag, data, bytes};
    return last_;
  }

  bool test(Ticket ticket) override {
    auto it = receives_.find(ticket);
    if (it == receives_.end()) return true;
    // Receives of one (sender, tag) get messages in the order in which the receives were posted.
    for (const auto& [earlier, r] : receives_)
      if (earlier < ticket && r.from == it->second.from && r.tag == it->second.tag) return false;
    std::lock_guard lock(world_->mutex_);
    auto& box = world_->mail_[key(rank_, it->second.from, it->second.tag)];
    if (!world_->arrived(box)) return false;
    if (box.front().body.size() != it->second.bytes)
      throw Error(Code::internal, "loopback", "a message has another length than its receive");
    std::memcpy(it->second.data, box.front().body.data(), it->second.bytes);
    box.pop_front();
    receives_.erase(it);
    return true;
  }

  void abandon(Ticket ticket) override { receives_.erase(ticket); }
  bool gives_memory_back() const override { return true; }

  std::optional<Message> poll(Tag tag) override {
    std::lock_guard lock(world_->mutex_);
    for (int from = 0; from < size(); ++from) {
      auto it = world_->mail_.find(key(rank_, from, tag));
      if (it == world_->mail_.end() || !world_->arrived(it->second)) continue;
      Message m{from, std::move(it->second.front().body)};
      it->second.pop_front();
      return m;
    }
    return std::nullopt;
  }

  std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) override {
    std::vector<int> all;
    int mine = -1;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank_) mine = static_cast<int>(i);
      all.push_back(member(members[i]));
    }
    return std::make_unique<Loopback>(world_, std::move(all), mine, stream);
  }
  int streams() const override { return 512; }

  std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) override {
    std::lock_guard lock(world_->mutex_);
    auto& known = world_->memory_[{stream_, member(members.front()), shared_++}];
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
  int member(int r) const { return members_[static_cast<std::size_t>(r)]; }
  LoopbackWorld::Key key(int to, int from, Tag tag) const {
    return {member(to), member(from), stream_, static_cast<int>(tag)};
  }
  std::shared_ptr<LoopbackWorld> world_;
  const std::vector<int> members_;
  std::vector<int> hosts_;
  const int rank_, stream_;
  int shared_ = 0;
  Ticket last_ = 0;
  std::map<Ticket, Receive> receives_;
};

void LoopbackWorld::delay(unsigned seed, std::int64_t most_ns) {
  std::lock_guard lock(mutex_);
  random_.seed(seed);
  most_ns_ = most_ns;
}

/// True if the first message of the queue has arrived.  The caller holds mutex_.
bool LoopbackWorld::arrived(const std::deque<Letter>& box) const {
  return !box.empty() && (box.front().due_ns == 0 || memory::now_ns() >= box.front().due_ns);
}

/// Returns the time of arrival of a message sent now; 0: immediately.  The caller holds mutex_.
std::int64_t LoopbackWorld::due() {
  return most_ns_ > 0 ? memory::now_ns() + static_cast<std::int64_t>(random_() % static_cast<unsigned>(most_ns_)) : 0;
}

std::unique_ptr<Transport> LoopbackWorld::open(int rank) {
  std::vector<int> all(hosts_.size());
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<Loopback>(shared_from_this(), std::move(all), rank, 0);
}

}  // namespace hvd::transport
