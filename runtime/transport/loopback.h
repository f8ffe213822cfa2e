/// @file loopback.h — ranks as threads of one process: the transport's twin for tests, and the world of one.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <tuple>

#include "transport/transport.h"

namespace hvd::transport {

/// What the threads share.  Made once for a world; each rank gets its Transport by open().
class LoopbackWorld : public std::enable_shared_from_this<LoopbackWorld> {
 public:
  /// @param hosts  [size] host number of each rank.
  explicit LoopbackWorld(std::vector<int> hosts) : hosts_(std::move(hosts)) {}
  /// All ranks on one host.
  static std::shared_ptr<LoopbackWorld> make(int size) {
    return std::make_shared<LoopbackWorld>(std::vector<int>(static_cast<std::size_t>(size), 0));
  }
  std::unique_ptr<Transport> open(int rank);
  /// From now on a message arrives after a random time of up to @p most_ns (still in order per sender and tag).
  void delay(unsigned seed, std::int64_t most_ns);

 private:
  friend class Loopback;
  struct Letter {
    std::string body;
    std::int64_t due_ns = 0;  ///< 0: at once
  };
  bool arrived(const std::deque<Letter>& box) const;
  std::int64_t due();
  using Key = std::tuple<int, int, int, int>;  ///< to, from (ranks of the world), stream, tag
  std::vector<int> hosts_;
  std::mutex mutex_;
  std::map<Key, std::deque<Letter>> mail_;
  std::mt19937 random_;
  std::int64_t most_ns_ = 0;  ///< longest delay
  /// Memory by (stream, first member, times shared): each member asks once in the same order.
  std::map<std::tuple<int, int, int>, std::weak_ptr<void>> memory_;
};

}  // namespace hvd::transport
