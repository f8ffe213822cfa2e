/// @file hello.h — the first message of a guard or a host daemon.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::wire {

/// Number of ports that rank 0's guard holds: one for torch's store, one for JAX's coordinator.
inline constexpr std::size_t ports_of_rank_0 = 2;

struct Hello {
  int protocol = 1;  ///< protocol_version of the guard
  int rank = 0;
  std::int64_t pid = 0;
  std::string host;          ///< HVD_HOST if hvdrun set it, else the machine's own name
  bool local = false;        ///< on hvdrun's own host: the connection is a unix socket
  std::string version;       ///< of hvdrank
  std::int64_t mono_ns = 0;  ///< CLOCK_MONOTONIC when the message was sent
  bool daemon = false;       ///< the sender is a host daemon; `rank` is the first of its ranks
  std::vector<int> ports;    ///< [ports_of_rank_0] TCP ports that rank 0's guard keeps free on another host, or none
};

std::string to_json(const Hello& h);
/// Throws Error{usage}, or Error{mismatch} for another protocol.
Hello hello_from_json(const std::string& text);

}  // namespace hvd::wire
