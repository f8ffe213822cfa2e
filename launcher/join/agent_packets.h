/// @file agent_packets.h — the packets between a launch agent and the join server, over SOCK_SEQPACKET.
///
/// agent → server: 'h' and the host's name, 's' and a piece of the script, 'e': the script is complete.
/// server → agent: 'o' and output, 'e' and the decimal exit code.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::launcher {

inline constexpr std::size_t most_packet_bytes = 32u << 10;

/// Throws Error{usage} if the path is too long for a socket.
sockaddr_un socket_address(const std::string& path);
/// False when the other end is gone, or has no room and @p flags has MSG_DONTWAIT.
bool send_packet(int fd, char kind, std::string_view bytes, int flags = 0);
/// The next packet.  Empty: the other end is gone, or (with MSG_DONTWAIT) nothing waits and errno is EAGAIN.
std::string next_packet(int fd, int flags = 0);

}  // namespace hvd::launcher
