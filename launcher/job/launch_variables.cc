#include "launcher/job/launch_variables.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

HeldPort::HeldPort() {
  int version = AF_INET6;
  socket_ = Fd(::socket(version, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_) socket_ = Fd(::socket(version = AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  sockaddr_storage address{};  // any address, any port
  address.ss_family = static_cast<sa_family_t>(version);
  socklen_t size = version == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (version == AF_INET6) ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket_.get(), where, size) != 0 || ::getsockname(socket_.get(), where, &size) != 0)
    throw Error(Code::unavailable, "MASTER_PORT", "no TCP port is free: " + errno_text(errno));
  number_ = ntohs(version == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                      : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

int port_on_another_host(const std::string& job_id) {
  constexpr unsigned first = 20000, end = 32768;  // /proc/sys/net/ipv4/ip_local_port_range begins at 32768
  unsigned sum = 0;
  for (const char letter : job_id) sum = sum * 31 + static_cast<unsigned char>(letter);
  return static_cast<int>(first + sum % (end - first));
}

std::map<std::string, std::string> torchrun_variables(const JobMap& map, const MappedRank& rank,
                                                      const MeetingPoint& meeting, const std::string& job_id) {
  const std::string size = std::to_string(map.ranks.size());
  return {{"RANK", std::to_string(rank.rank)},
          {"WORLD_SIZE", size},
          {"LOCAL_RANK", std::to_string(rank.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(rank.local_size)},
          {"GROUP_RANK", std::to_string(rank.host)},
          {"GROUP_WORLD_SIZE", std::to_string(map.hosts.size())},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", std::to_string(rank.rank)},
          {"ROLE_WORLD_SIZE", size},
          {"MASTER_ADDR", meeting.address},
          {"MASTER_PORT", std::to_string(meeting.port)},
          {"TORCHELASTIC_RUN_ID", job_id},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};  // rank 0 serves the store itself
}

std::map<std::string, std::string> horovodrun_variables(const JobMap& map, const MappedRank& rank) {
  return {{"HOROVOD_RANK", std::to_string(rank.rank)},
          {"HOROVOD_SIZE", std::to_string(map.ranks.size())},
          {"HOROVOD_LOCAL_RANK", std::to_string(rank.local_rank)},
          {"HOROVOD_LOCAL_SIZE", std::to_string(rank.local_size)},
          {"HOROVOD_CROSS_RANK", std::to_string(rank.cross_rank)},
          {"HOROVOD_CROSS_SIZE", std::to_string(rank.cross_size)},
          {"HOROVOD_HOSTNAME", map.hosts[static_cast<std::size_t>(rank.host)].name}};
}

}  // namespace hvd::launcher
