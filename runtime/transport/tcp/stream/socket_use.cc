#include "transport/tcp/stream/socket_use.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace hvd::transport::tcp {
namespace {

// Offsets in the kernel's tcp_info, in units of eight bytes.  glibc's header lacks the later fields, and <linux/tcp.h>
// conflicts with that header.
constexpr std::size_t bytes_acked = 15, notsent_and_min_rtt = 18, busy_time = 21, rwnd_limited = 22;
constexpr std::uint32_t unknown = ~std::uint32_t{0};  ///< the kernel's value for an unknown round trip

}  // namespace

SocketUse socket_use(int fd) {
  std::array<std::uint64_t, rwnd_limited + 1> info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, info.data(), &bytes) != 0 || bytes < sizeof info) return {};
  const std::uint64_t busy_us = info[busy_time] - std::min(info[rwnd_limited], info[busy_time]);
  std::uint32_t pair[2];
  std::memcpy(pair, &info[notsent_and_min_rtt], sizeof pair);
  const std::int64_t round_trip_us = pair[1] == unknown ? 0 : pair[1];
  return {static_cast<std::int64_t>(info[bytes_acked]), static_cast<std::int64_t>(busy_us) * 1000,
          round_trip_us * 1000};
}

}  // namespace hvd::transport::tcp
