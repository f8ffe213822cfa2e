#include "launcher/control/commands/query_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/load.h"
#include "base/process/process.h"
#include "wire/channel/bounded_accept.h"

namespace hvd::launcher {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_line_bytes = 8192, most_answer_bytes = 256u << 20, most_peers = 16;
constexpr std::size_t most_heard_bytes = 64u << 10;  // read at once from a conversation; the rest waits in the socket
constexpr std::size_t most_behind_bytes = 16u << 20;
constexpr std::chrono::duration<double> question_limit{5};  // for a caller to ask, times load_factor()

bool fill(sockaddr_un& address, const std::string& path) {
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

bool is_ours(int fd) {
  const auto peer = peer_of(fd);
  return peer && (peer->uid == ::geteuid() || peer->uid == 0);
}

}  // namespace

QueryServer::QueryServer(const std::string& folder) {
  sockaddr_un address{};
  if (!fill(address, folder + socket_name)) return;
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener_ && (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
                    ::listen(listener_.get(), 16) != 0))
    listener_.reset();
}

void QueryServer::accept_all() {
  for (std::size_t i = 0; listener_ && has_room() && i < most_peers; ++i) {
    Fd fd(wire::reserved_accept(listener_.get(), SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (!is_ours(fd.get())) continue;
    if (peers_.size() >= most_peers) peers_.erase(std::find_if(peers_.begin(), peers_.end(), is_silent));
    peers_.push_back({next_id_++, std::move(fd), Clock::now()});
  }
}

/// Makes room by closing callers that have asked nothing yet, the oldest first.
bool QueryServer::has_room() const {
  return peers_.size() < most_peers || std::any_of(peers_.begin(), peers_.end(), is_silent);
}

void QueryServer::add_fds(std::vector<pollfd>& fds) const {
  if (listener_ && has_room()) fds.push_back({listener_.get(), POLLIN, 0});
  for (const QueryClient& p : peers_) {
    const bool hears = p.converses && !p.in_ended && p.in.size() < most_heard_bytes;
    const bool says = p.converses && !p.out.empty();
    if (p.converses) fds.push_back({p.fd.get(), static_cast<short>((hears ? POLLIN : 0) | (says ? POLLOUT : 0)), 0});
  }
}

/// Reads the bytes that the caller of a conversation has sent.
void QueryServer::listen_to(QueryClient& peer) {
  char piece[4096];
  while (!peer.in_ended && peer.in.size() < most_heard_bytes) {
    const ssize_t n = ::read(peer.fd.get(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n > 0)
      peer.in.append(piece, static_cast<std::size_t>(n));
    else
      peer.in_ended = true;
  }
  pollfd end{peer.fd.get(), 0, 0};
  if (::poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR))) peer.gone = true;
}

/// Reads a question from @p peer and sends the answer, without waiting.  False: the connection is over.
bool QueryServer::serve(QueryClient& peer) {
  char piece[512];
  if (peer.converses) listen_to(peer);
  while (!peer.asked) {
    const ssize_t n = ::read(peer.fd.get(), piece, sizeof piece);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) return false;
    peer.in.append(piece, static_cast<std::size_t>(n));
    if (peer.in.size() > most_line_bytes) return false;
    if (peer.in.find('\n') != std::string::npos) break;
  }
  while (!peer.out.empty()) {
    const ssize_t n = ::send(peer.fd.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    if (n < 0 && peer.converses && errno != EAGAIN && errno != EINTR) peer.gone = true;
    if (n < 0) return errno == EAGAIN || errno == EINTR || (peer.converses && !peer.answered);
    peer.out.erase(0, static_cast<std::size_t>(n));
  }
  return !peer.answered && (peer.asked || Clock::now() - peer.since < question_limit * load_factor());
}

std::optional<QueryServer::Query> QueryServer::next() {
  accept_all();
  std::erase_if(peers_, [this](QueryClient& p) { return !serve(p); });
  for (QueryClient& p : peers_)
    if (const std::size_t end = p.in.find('\n'); !p.asked && end != std::string::npos) {
      p.asked = true;
      return Query{p.id, p.in.substr(0, end)};
    }
  return {};
}

void QueryServer::answer(int id, std::string text) {
  for (QueryClient& p : peers_)
    if (p.id == id) p.out = std::move(text), p.answered = true;
}

void QueryServer::converse(int id) {
  for (QueryClient& p : peers_)
    if (p.id == id) {
      p.converses = true;
      p.in.erase(0, p.in.find('\n') + 1);
    }
}

std::optional<QueryServer::Heard> QueryServer::heard() {
  for (auto p = peers_.begin(); p != peers_.end(); ++p) {
    if (!p->converses || (p->in.empty() && !p->gone && (!p->in_ended || p->end_told))) continue;
    p->end_told = p->in_ended;
    Heard heard{p->id, std::exchange(p->in, {}), p->in_ended, p->gone};
    if (p->gone) peers_.erase(p);
    return heard;
  }
  return {};
}

void QueryServer::say(int id, std::string_view bytes) {
  for (QueryClient& p : peers_)
    if (p.id == id && !p.gone) {
      p.out.append(bytes);
      p.gone = p.out.size() > most_behind_bytes;
    }
}

void QueryServer::end(int id) {
  for (QueryClient& p : peers_)
    if (p.id == id) p.answered = true;
}

std::size_t QueryServer::pending_bytes() const {
  std::size_t total = 0;
  for (const QueryClient& p : peers_) total += p.out.size();
  return total;
}

Fd call_job(const std::string& folder, const std::string& line, std::chrono::milliseconds limit) {
  sockaddr_un address{};
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // The socket holds a few callers that a stopped job has not accepted.  connect() of the next one would wait for ever.
  const timeval longest{limit.count() / 1000, limit.count() % 1000 * 1000};
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  if (!fd || !fill(address, folder + QueryServer::socket_name) ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || !is_ours(fd.get()) ||
      // A job that is just ending has closed its end of the socket.  The caller must get an error, not SIGPIPE.
      ::send(fd.get(), (line + "\n").data(), line.size() + 1, MSG_NOSIGNAL) != static_cast<ssize_t>(line.size() + 1))
    throw Error(Code::unavailable, folder, "the job there does not answer", "it has probably ended; try: hvdrun ps");
  return fd;
}

std::string ask_job(const std::string& folder, const std::string& line, std::chrono::milliseconds limit) {
  const Fd fd = call_job(folder, line, limit);
  const auto deadline = Clock::now() + limit;
  std::string answer;
  std::string piece(64 << 10, '\0');
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{fd.get(), POLLIN, 0};
    if (left <= 0)
      throw Error(Code::timeout, folder, "the job there gave no answer in time", "is it very busy? try again");
    if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || answer.size() > most_answer_bytes) break;
    answer.append(piece, 0, static_cast<std::size_t>(n));
  }
  return answer;
}

}  // namespace hvd::launcher
