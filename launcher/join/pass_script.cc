#include "launcher/join/pass_script.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "launcher/join/agent_packets.h"
#include "launcher/process/script_shell.h"

namespace hvd::launcher {

sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Error(Code::usage, path, "is too long for a socket", "set TMPDIR to a shorter path");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool send_packet(int fd, char kind, std::string_view bytes, int flags) {
  std::string packet(1, kind);
  packet.append(bytes);
  ssize_t n;
  do { n = ::send(fd, packet.data(), packet.size(), flags | MSG_NOSIGNAL); } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(packet.size());
}

std::string next_packet(int fd, int flags) {
  std::string packet(most_packet_bytes + 1, '\0');
  ssize_t n;
  do { n = ::recv(fd, packet.data(), packet.size(), flags); } while (n < 0 && errno == EINTR);
  if (n == 0) errno = 0;
  packet.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return packet;
}

int pass_script(const std::vector<std::string>& args) {
  if (args.size() < 2) throw Error(Code::usage, "--pass-script", "is for hvdrun's use");
  const std::string& host = args[1];
  const std::string script = script_on_stdin();
  const sockaddr_un address = socket_address(args[0]);
  const Fd link(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!link || ::connect(link.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw Error(Code::unavailable, host, "hvdrun --listen does not answer: " + errno_text(errno));
  bool sent = send_packet(link.get(), 'h', host);
  for (std::size_t at = 0; sent && at < script.size(); at += most_packet_bytes)
    sent = send_packet(link.get(), 's', std::string_view(script).substr(at, most_packet_bytes));
  sent = sent && send_packet(link.get(), 'e', {});
  while (sent) {
    const std::string packet = next_packet(link.get());
    if (packet.empty()) break;
    if (packet[0] == 'o' && !write_all(1, std::string_view(packet).substr(1))) return static_cast<int>(Code::peer_lost);
    if (packet[0] == 'e') return static_cast<int>(to_integer(packet.substr(1)).value_or(255));
  }
  throw Error(Code::peer_lost, host, "the connection to this host is lost");
}

}  // namespace hvd::launcher
