#include "launcher/join/join_server.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/join/agent_packets.h"
#include "wire/channel/bounded_accept.h"

namespace hvd::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using wire::Type;
constexpr std::size_t most_agent_script_bytes = 2u << 20, most_name_letters = 253, most_hosts_here = 65536;
constexpr auto farewell = std::chrono::seconds(2);

bool is_host_name(const std::string& name) {
  return !name.empty() && name.size() <= most_name_letters && name[0] != '-' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.' || c == '_'; });
}

/// Listens on all addresses: IPv4 and, if the machine has it, IPv6.
std::unique_ptr<wire::Listener> listen_at(int port, const JoinKeys& keys) {
  const auto at = [&](const char* ip) {
    return wire::listen({formatted("tcp://{}:{}", ip, port)}, keys.launcher, keys.host.public_key);
  };
  if (::access("/proc/net/if_inet6", F_OK) == 0) try {
      return at("[::]");
    } catch (const Error&) {}  // IPv6 is switched off, or the port is taken; then the next line throws
  return at("0.0.0.0");
}

Fd listen_for_agents(const std::string& path) {
  const sockaddr_un address = socket_address(path);
  Fd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made || ::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(made.get(), 1024) != 0)
    throw Error(Code::unavailable, path, errno_text(errno));
  return made;
}

}  // namespace

JoinServer::JoinServer(int port, const JoinKeys& keys, const std::string& agents_path)
    : listener_(listen_at(port, keys)), agents_socket_(listen_for_agents(agents_path)) {}

void JoinServer::turn(int also, int milliseconds) {
  const int agents = std::exchange(is_full_, false) ? -1 : agents_socket_.get();
  std::vector<pollfd> on{{listener_->fd(), POLLIN, 0}, {agents, POLLIN, 0}, {also, POLLIN, 0}};
  for (const Agent& a : agents_) on.push_back({a.link.get(), POLLIN, 0});
  flush();
  while (const auto got = listener_->receive()) receive(*got), milliseconds = 0;  // fd() is edge-triggered
  ::poll(on.data(), on.size(), milliseconds);
  while (const auto got = listener_->receive()) receive(*got);
  while (const auto peer = listener_->gone()) lose(*peer);
  admit_agents();
  agents_.remove_if([this](Agent& a) { return !serve(a); });
  flush();
}

std::vector<wire::JoinOffer> JoinServer::hosts() const {
  std::map<std::string, wire::JoinOffer> by_name;
  for (const Guest& g : guests_)
    if (!g.is_leaving) by_name[g.offer.host] = g.offer;
  std::vector<wire::JoinOffer> all;
  for (auto& [name, offer] : by_name) all.push_back(std::move(offer));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return ::strverscmp(a.host.c_str(), b.host.c_str()) < 0; });
  return all;
}

bool JoinServer::take_leave() { return std::exchange(has_leave_, false); }

void JoinServer::dismiss_all(int code, const std::string& reason) {
  for (Guest& g : guests_) send(g, Type::dismiss, formatted("{} {}", code, reason));
  for (const auto end = Clock::now() + farewell; !guests_.empty() && Clock::now() < end;) turn(-1, 20);
}

void JoinServer::receive(const wire::Listener::PeerFrame& got) {
  const auto type = static_cast<Type>(got.frame.type);
  if (type == Type::join) return take_offer(got.from, got.frame.body);
  Guest* const from = guest(got.from);
  if (!from) return;
  if (type == Type::leave) {
    from->is_leaving = true;
    has_leave_ = has_leave_ || from->is_busy;
    return;
  }
  if (type == Type::script_end) from->is_busy = false;
  Agent* const agent = agent_on(got.from);
  if (!agent) return;
  // An agent that does not read loses output, because this process must not wait for it.
  const std::string_view body = got.frame.body;
  if (type == Type::script_output)
    for (std::size_t at = 0; at < body.size(); at += most_packet_bytes)
      send_packet(agent->link.get(), 'o', body.substr(at, most_packet_bytes), MSG_DONTWAIT);
  if (type == Type::script_end) {
    send_packet(agent->link.get(), 'e', body.substr(0, 8), MSG_DONTWAIT);
    agents_.remove_if([&](const Agent& a) { return &a == agent; });
  }
}

void JoinServer::take_offer(const wire::PeerId& from, const std::string& body) {
  if (guest(from)) return;
  Guest newcomer{from, {}};
  std::string fault;
  try {
    newcomer.offer = wire::join_offer_from_json(body);
    if (newcomer.offer.version != HVD_VERSION)
      fault = formatted("hvdrun {} cannot join hvdrun {}: install one version", printable(newcomer.offer.version),
                        HVD_VERSION);
    else if (!is_host_name(newcomer.offer.host))
      fault = "\"" + printable(newcomer.offer.host) + "\" is no name of a host";
    else if (guests_.size() >= most_hosts_here)
      fault = "there are too many hosts";
  } catch (const Error& e) { fault = printable(e.what()); }
  newcomer.is_leaving = !fault.empty();
  if (newcomer.is_leaving) send(newcomer, Type::dismiss, "4 " + fault);
  // A host that joins an elastic job again counts as a new host.  So earlier failures do not exclude it.
  const std::string name = newcomer.offer.host;
  for (int n = 2; used_.contains(newcomer.offer.host); ++n) newcomer.offer.host = formatted("{}.{}", name, n);
  // A restarted pod joins under its old name, perhaps before its old connection has ended.  The old connection is
  // dismissed.
  for (Guest& g : guests_)
    if (!newcomer.is_leaving && g.offer.host == newcomer.offer.host && !g.is_busy) {
      send(g, Type::dismiss, "4 another host has joined with the name " + g.offer.host);
      g.is_leaving = true;
    }
  guests_.push_back(std::move(newcomer));
}

void JoinServer::admit_agents() {
  for (;;) {
    Fd link(wire::reserved_accept(agents_socket_.get(), SOCK_CLOEXEC));  // strangers at the port do not keep agents out
    if (!link) {
      is_full_ = errno == EMFILE || errno == ENFILE;
      return;
    }
    if (is_of_this_user(link.get())) agents_.push_back({std::move(link), {}, {}});
  }
}

/// Takes the agent's packets.  Returns false if the agent is no longer needed.
bool JoinServer::serve(Agent& agent) {
  for (;;) {
    const std::string packet = next_packet(agent.link.get(), MSG_DONTWAIT);
    if (packet.empty() && errno == EAGAIN) break;
    if (packet.empty()) {  // hvdrun has ended the agent
      if (Guest* const g = guest(agent.runs_on)) send(*g, Type::script_stop, {});
      return false;
    }
    if (packet[0] == 'h') agent.host = packet.substr(1);
    if (packet[0] == 's') agent.script += packet.substr(1);
    if (packet[0] == 'e') agent.has_all = true;
    if (agent.script.size() > most_agent_script_bytes) return false;
  }
  return !agent.has_all || !agent.runs_on.empty() || start(agent);
}

/// Sends the script if the host runs no other script.  Returns false if the host is not connected.
bool JoinServer::start(Agent& agent) {
  bool is_here = false;
  for (auto g = guests_.rbegin(); g != guests_.rend(); ++g) {
    if (g->offer.host != agent.host || g->is_leaving) continue;
    is_here = true;
    if (g->is_busy) continue;
    for (std::size_t at = 0; at < agent.script.size(); at += most_packet_bytes)
      send(*g, Type::script, agent.script.substr(at, most_packet_bytes));
    send(*g, Type::script, {});
    agent.script.clear();
    agent.runs_on = g->peer;
    used_.insert(agent.host);
    g->is_busy = true;
    return true;
  }
  return is_here;
}

void JoinServer::lose(const wire::PeerId& peer) {
  agents_.remove_if([&](const Agent& a) { return a.runs_on == peer; });  // each of them reports its host as lost
  guests_.remove_if([&](const Guest& g) { return g.peer == peer; });
}

JoinServer::Guest* JoinServer::guest(const wire::PeerId& peer) {
  const auto it = std::find_if(guests_.begin(), guests_.end(), [&](const Guest& g) { return g.peer == peer; });
  return it == guests_.end() ? nullptr : &*it;
}

JoinServer::Agent* JoinServer::agent_on(const wire::PeerId& peer) {
  const auto it = std::find_if(agents_.begin(), agents_.end(), [&](const Agent& a) { return a.runs_on == peer; });
  return it == agents_.end() ? nullptr : &*it;
}

/// Sends the waiting frames.  turn() removes hosts that are gone.
void JoinServer::flush() {
  for (Guest& g : guests_) try {
      while (!g.out.empty() && listener_->send(g.peer, g.out.front())) g.out.pop_front();
    } catch (const Error&) { g.out.clear(); }
}

}  // namespace hvd::launcher
