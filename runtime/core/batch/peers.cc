#include "core/batch/peers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>

namespace hvd::core {

std::string PeerProcess::text() const {
  std::string text;
  for (std::uint64_t n :
       {static_cast<std::uint64_t>(pid), host, static_cast<std::uint64_t>(arena.fd), arena.bytes, arena.inode})
    text += std::to_string(n) + " ";
  return text;
}

PeerProcess PeerProcess::of(const std::string& text) {
  PeerProcess c;
  char* end = nullptr;
  c.pid = std::strtoll(text.c_str(), &end, 10);
  c.host = std::strtoull(end, &end, 10);
  c.arena.pid = c.pid;
  c.arena.fd = static_cast<int>(std::strtoull(end, &end, 10));
  c.arena.bytes = std::strtoull(end, &end, 10);
  c.arena.inode = std::strtoull(end, &end, 10);
  return c;
}

PeerProcess PeerProcess::mine() {
  PeerProcess c;
  c.pid = getpid();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat ns {};
  if (stat("/proc/self/ns/pid", &ns) == 0) boot += ":" + std::to_string(ns.st_ino);
  c.host = std::hash<std::string>{}(boot);
  c.arena = memory::Arena::process().name();
  return c;
}

Peers::Peers(const World& world, std::vector<PeerProcess> processes)
    : world_(world), processes_(std::move(processes)), handles_(processes_.size()) {
  const PeerProcess me = PeerProcess::mine();
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    if (processes_[r].host != me.host || processes_[r].pid == me.pid) continue;
    // The rank is alive now.  So the handle means this process, even if the kernel uses the pid again later.
    handles_[r] = ProcessHandle(static_cast<pid_t>(processes_[r].pid));
  }
}

std::vector<Peers::PeerExit> Peers::find(const memory::Node& node) {
  std::vector<PeerExit> gone;
  const auto& locals = world_.locals();
  auto departed = [&](int r) {
    return world_.node_of[static_cast<std::size_t>(r)] == world_.node() &&
           node.presence(world_.local_of[static_cast<std::size_t>(r)]).departed.load(std::memory_order_acquire);
  };
  for (int r : locals)
    if (r != world_.rank && departed(r))
      gone.push_back({r, "rank " + std::to_string(r) + " has shut down while this rank waits for it", true});
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    if (departed(static_cast<int>(r))) continue;
    if (handles_[r].has_ended())
      gone.push_back({static_cast<int>(r),
                      "rank " + std::to_string(r) + " (pid " + std::to_string(processes_[r].pid) + ") is gone", false});
  }
  return gone;
}

}  // namespace hvd::core
