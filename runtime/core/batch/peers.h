/// @file peers.h — detects ranks of this host that have died or shut down.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/process/process_handle.h"
#include "common/world.h"
#include "memory/arena.h"
#include "memory/node.h"

namespace hvd::core {

/// Sent by each rank to the others at init, so that they can watch it.
struct PeerProcess {
  std::int64_t pid = 0;
  std::uint64_t host = 0;  ///< boot and pid namespace, within which a pid is unique
  memory::ArenaName arena;
  std::string text() const;
  static PeerProcess mine();
  static PeerProcess of(const std::string& text);
};

/// Finds processes of ranks that have ended.  Query it only while a rank waits without progress.
class Peers {
 public:
  Peers(const World& world, std::vector<PeerProcess> processes);

  struct PeerExit {
    int rank;
    std::string text;  ///< one line
    bool departed;     ///< shut down in order; false: died
  };
  /// The ranks of this host that have died or shut down.  @p node: of the global set.
  std::vector<PeerExit> find(const memory::Node& node);

 private:
  const World& world_;
  std::vector<PeerProcess> processes_;
  std::vector<ProcessHandle> handles_;  ///< [size]; none: this process, or another host's
};

}  // namespace hvd::core
