/// @file loopback.h — ranks as threads of one process: the transport's twin for tests, and the world of one.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
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

 private:
  friend class Loopback;
  using Key = std::tuple<int, int, int>;  ///< to, from, tag
  std::vector<int> hosts_;
  std::mutex mutex_;
  std::map<Key, std::deque<std::string>> mail_;
  /// Memory by (first member, times shared): each member asks once in the same order.
  std::map<std::pair<int, int>, std::weak_ptr<void>> memory_;
};

}  // namespace hvd::transport
