/// @file loopback.h — the transport for ranks that are threads of one process, as in tests, and for worlds of one rank.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <tuple>

#include "transport/transport.h"

namespace hvd::transport {

/// The state that the threads of one world share.  Each rank gets its Transport from open().  Any thread.
class LoopbackWorld : public std::enable_shared_from_this<LoopbackWorld> {
 public:
  /// @param hosts  [size] host number of each rank
  explicit LoopbackWorld(std::vector<int> hosts) : hosts_(std::move(hosts)) {}
  /// Makes a world whose ranks are all on one host.
  static std::shared_ptr<LoopbackWorld> make(int size) {
    return std::make_shared<LoopbackWorld>(std::vector<int>(static_cast<std::size_t>(size), 0));
  }
  std::unique_ptr<Transport> open(int rank);
  /// Delays each later message by a random time below @p most_ns, which is less than 2^32.  Messages of one (sender,
  /// tag) stay in order.
  void delay(unsigned seed, std::int64_t most_ns);

 private:
  friend class Loopback;
  struct Letter {
    std::string body;
    std::int64_t due_ns = 0;  ///< time of arrival; 0: immediately
  };
  bool arrived(const std::deque<Letter>& box) const;
  std::int64_t due();
  using Key = std::tuple<int, int, int, int>;  ///< receiver and sender (ranks of the world), stream, tag
  std::vector<int> hosts_;
  std::mutex mutex_;
  std::map<Key, std::deque<Letter>> mail_;
  std::mt19937 random_;
  std::int64_t most_ns_ = 0;  ///< longest delay
  /// Memory by (stream, first member, index of the request).  All members make their requests in the same order.
  std::map<std::tuple<int, int, int>, std::weak_ptr<void>> memory_;
};

}  // namespace hvd::transport
