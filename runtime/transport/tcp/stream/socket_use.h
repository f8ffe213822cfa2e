/// @file socket_use.h — the kernel's counters of a TCP connection.
#pragma once
#include <cstdint>

namespace hvd::transport::tcp {

struct SocketUse {
  std::int64_t acknowledged_bytes = 0;  ///< bytes sent by this end and acknowledged by the other end
  /// Time during which this end had unacknowledged bytes and the other end had room for more.  The network limited the
  /// transfer during this time.
  std::int64_t busy_ns = 0;
  std::int64_t round_trip_ns = 0;  ///< shortest measured round trip; 0: unknown
};

/// Returns the counters since the connection was made.  All are 0 for a socket that is not TCP, and on kernels before
/// 4.10.
SocketUse socket_use(int fd);

}  // namespace hvd::transport::tcp
