/// @file socket_use.h — what the kernel has counted of a TCP connection.
#pragma once
#include <cstdint>

namespace hvd::transport::tcp {

struct SocketUse {
  std::int64_t acknowledged_bytes = 0;  ///< that were sent from here, and have arrived
  /// Bytes were on their way from here, and the other end had room for more: the link was what took the time.
  std::int64_t busy_ns = 0;
  std::int64_t round_trip_ns = 0;  ///< the least so far
};

/// Since the connection was made; nothing for one that is not TCP, and from kernels before 4.10.
SocketUse socket_use(int fd);

}  // namespace hvd::transport::tcp
