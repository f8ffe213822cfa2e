#include "launcher/hosts/resolve.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_lookups = 16;

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::string host_name() {
  char text[256] = {};
  return gethostname(text, sizeof text - 1) == 0 ? text : "";
}

bool local_by_name(const std::string& host, const std::string& self) {
  return host == "localhost" || host == "::1" || host.starts_with("127.") || host == self ||
         host == self.substr(0, self.find('.'));
}

std::set<std::string> own_addresses() {
  std::set<std::string> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr) continue;
    if (i->ifa_addr->sa_family == AF_INET) out.insert(numeric(i->ifa_addr, sizeof(sockaddr_in)));
    if (i->ifa_addr->sa_family == AF_INET6) out.insert(numeric(i->ifa_addr, sizeof(sockaddr_in6)));
  }
  freeifaddrs(list);
  return out;
}

/// The source address that the kernel would use.  Connecting a datagram socket sends no packet.
std::string source_towards(const addrinfo& to) {
  Fd fd(socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  sockaddr_storage with_port{};
  std::copy_n(reinterpret_cast<const char*>(to.ai_addr), to.ai_addrlen, reinterpret_cast<char*>(&with_port));
  reinterpret_cast<sockaddr_in*>(&with_port)->sin_port = htons(9);  // any port; sockaddr_in6 has it at the same place
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&with_port), to.ai_addrlen) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return {};
  return numeric(reinterpret_cast<sockaddr*>(&own), length);
}

/// Returns this host's address on the default route.  Without a default route, returns any address.  Without any
/// address, returns the loopback address: all hosts of the job are then this machine.
std::string own_main_address() {
  sockaddr_in far{};
  far.sin_family = AF_INET;
  far.sin_addr.s_addr = htonl(0xc6336401);  // 198.51.100.1, for documentation: nothing is sent there
  addrinfo to{};
  to.ai_family = AF_INET;
  to.ai_addr = reinterpret_cast<sockaddr*>(&far);
  to.ai_addrlen = sizeof far;
  if (const std::string found = source_towards(to); !found.empty()) return found;
  const std::set<std::string> own = own_addresses();
  const auto usable = std::find_if(own.begin(), own.end(), [](const std::string& address) {
    return !address.starts_with("127.") && address.find(':') == std::string::npos;
  });
  return usable != own.end() ? *usable : "127.0.0.1";
}

/// Empty on success, else the reason.
std::string look_up(ResolvedHost& host, const std::set<std::string>& own) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.host.c_str(), nullptr, &hints, &found);
  if (error == EAI_NONAME || error == EAI_BADFLAGS) {  // ADDRCONFIG refuses where only loopback is up
    hints.ai_flags = 0;
    error = getaddrinfo(host.host.c_str(), nullptr, &hints, &found);
  }
  if (error != 0) return gai_strerror(error);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  host.address = numeric(found->ai_addr, found->ai_addrlen);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    const std::string address = numeric(a->ai_addr, a->ai_addrlen);
    host.local = host.local || own.contains(address) || address.starts_with("127.") || address == "::1";
    if (host.reach_us.empty()) host.reach_us = source_towards(*a);
  }
  return {};
}

}  // namespace

std::vector<ResolvedHost> resolve(const Allocation& allocation) {
  std::vector<ResolvedHost> hosts;
  std::vector<std::size_t> unknown;
  const std::string self = host_name();
  for (const HostSlots& h : allocation.hosts) {
    hosts.push_back({h.host, local_by_name(h.host, self), {}, {}, {}});
    if (!hosts.back().local) unknown.push_back(hosts.size() - 1);
  }
  if (unknown.empty()) return hosts;

  const std::set<std::string> own = own_addresses();
  std::vector<std::string> reasons(hosts.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < std::min(unknown.size(), most_lookups); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < unknown.size();) reasons[unknown[i]] = look_up(hosts[unknown[i]], own);
    });
  threads.clear();  // joins

  if (!allocation.launch_agent.empty())
    for (const std::size_t i : unknown)
      if (!reasons[i].empty()) reasons[i].clear(), hosts[i].reach_us = own_main_address();

  for (const std::size_t i : unknown)
    if (!reasons[i].empty()) hosts[i].unknown = allocation.hosts[i].where + ": " + reasons[i];
  return hosts;
}

void require_known(const std::vector<ResolvedHost>& hosts) {
  std::vector<std::string> bad;
  std::string first;
  for (const ResolvedHost& host : hosts)
    if (!host.unknown.empty()) {
      if (bad.empty()) first = host.unknown;
      bad.push_back(host.host);
    }
  if (!bad.empty())
    throw Error(Code::unavailable, bad.size() == 1 ? "unknown host " + bad[0] : "unknown hosts " + join(bad, ", "),
                first, "check the spelling, or try: getent hosts " + bad[0]);
}

}  // namespace hvd::launcher
