/// @file peers.h — detects ranks of this host that have died or shut down.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/handle.h"
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

struct PidFdTraits {
  using type = int;
  static int null() noexcept { return -1; }
  static void abandon(int fd) noexcept;
};

/// To be asked only while a rank waits without progress.
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
  std::vector<Handle<PidFdTraits>> fds_;  ///< [size]; null: same process, another host, or not supported
};

}  // namespace hvd::core
