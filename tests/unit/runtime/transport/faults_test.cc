/// Makes each system call of the protocol fail once, on each side and at each point. The received bytes must then be
/// right, or the error must name the peer. No rank may hang.
#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tcp_ranks.h"

using namespace hvd;
using namespace hvd::testing;
using transport::Transport;

namespace {

enum class Call { socket, connect, connect_error, accept, send, receive, epoll_ctl };

struct Fault {
  Call call;
  int at;      ///< the index of the call, from 0
  int number;  ///< errno; 0: the other end has closed, or half of the bytes are sent
};

class FaultyCalls final : public transport::tcp::SocketCalls {
 public:
  explicit FaultyCalls(Fault fault) : fault_(fault) {}
  bool done() const { return seen_ > fault_.at; }

  int socket(int family) override { return fails(Call::socket) ? -1 : SocketCalls::socket(family); }
  int connect(int fd, const sockaddr* to, socklen_t bytes) override {
    return fails(Call::connect) ? -1 : SocketCalls::connect(fd, to, bytes);
  }
  int connect_error(int fd) override { return fails(Call::connect_error) ? errno : SocketCalls::connect_error(fd); }
  int accept(int listener) override { return fails(Call::accept) ? -1 : SocketCalls::accept(listener); }
  ssize_t send(int fd, const iovec* parts, int count) override {
    if (!fails(Call::send)) return SocketCalls::send(fd, parts, count);
    if (fault_.number != 0) return reset(fd);
    const iovec half{parts[0].iov_base, (parts[0].iov_len + 1) / 2};
    return SocketCalls::send(fd, &half, 1);
  }
  ssize_t receive(int fd, const iovec* parts, int count) override {
    if (!fails(Call::receive)) return SocketCalls::receive(fd, parts, count);
    if (fault_.number != 0) return reset(fd);
    ::shutdown(fd, SHUT_RDWR);
    return 0;
  }
  int epoll_ctl(int epoll, int what, int fd, std::uint32_t events) override {
    return fails(Call::epoll_ctl) ? -1 : SocketCalls::epoll_ctl(epoll, what, fd, events);
  }

 private:
  bool fails(Call call) {
    if (call != fault_.call || seen_++ != fault_.at) return false;
    errno = fault_.number;
    return true;
  }
  /// The connection also ends for the other side.
  ssize_t reset(int fd) {
    if (fault_.number == ECONNRESET || fault_.number == EPIPE) ::shutdown(fd, SHUT_RDWR);
    errno = fault_.number;
    return -1;
  }
  const Fault fault_;
  int seen_ = 0;
};

/// The distance between two calls that fail. Under the thread sanitizer a test of all calls takes minutes. So a run
/// tests every eighth call, with a different offset for each errno and side. The long form and the address sanitizer
/// test all.
#if defined(__SANITIZE_THREAD__)
const int apart = std::getenv("HVD_TEST_EVERY_CALL") ? 1 : 8;
#else
constexpr int apart = 1;
#endif

/// Returns true when the fault has occurred.
bool try_fault(Fault fault, int side, transport::tcp::TcpOptions (*way)(int)) {
  FaultyCalls faulty(fault);
  const auto failures = run_tcp(
      2,
      [](Transport& t) {
        exchange_all(t, {0, 10, 100'000, 3});
        exchange_all(t, {1 << 20, 5});
      },
      [&](int r) {
        transport::tcp::TcpOptions o = way(r);
        o.limit_seconds = 1.5;
        o.again_seconds = 0.002;
        o.leave_seconds = 0.02;
        if (r == side) o.calls = &faulty;
        return o;
      });
  for (int r = 0; r < 2; ++r) {
    const std::string& f = failures[static_cast<std::size_t>(r)];
    const bool named = f.find("rank " + std::to_string(1 - r)) != std::string::npos;
    const bool at_start = f.starts_with("epoll: ");
    INFO("call " << static_cast<int>(fault.call) << " number " << fault.at << " errno " << fault.number << " on rank "
                 << side << ": rank " << r << ": " << f);
    CHECK((f.empty() || named || at_start));
  }
  return faulty.done();
}

void try_all(Call call, std::initializer_list<int> numbers, int most = 200,
             transport::tcp::TcpOptions (*way)(int) = by_tcp) {
  std::vector<std::thread> threads;  // each thread mostly waits
  int first = 0;
  for (const int side : {0, 1})
    for (const int number : numbers)
      threads.emplace_back([=, first = first++ % apart] {
        for (int at = first; at < most; at += apart)
          if (!try_fault({call, at, number}, side, way)) break;
      });
  for (std::thread& t : threads) t.join();
}

}  // namespace

TEST_CASE("a fault at each call that makes a connection") {
  try_all(Call::socket, {EMFILE});
  try_all(Call::connect, {ECONNREFUSED, ENETUNREACH, EINTR});
  try_all(Call::connect_error, {ECONNREFUSED, ETIMEDOUT});
  try_all(Call::accept, {EMFILE, ECONNABORTED, EINTR});
}

TEST_CASE("a fault at each send") { try_all(Call::send, {EINTR, EAGAIN, ECONNRESET, 0}); }
TEST_CASE("a fault at each receive") { try_all(Call::receive, {EINTR, EAGAIN, ECONNRESET, 0}); }
TEST_CASE("a fault at each change of what epoll watches") { try_all(Call::epoll_ctl, {ENOMEM}, 40); }
TEST_CASE("a fault at each call that makes or uses an encrypted connection") {
  try_all(Call::socket, {EMFILE}, 200, by_tls);
  try_all(Call::connect, {ECONNREFUSED, EINTR}, 200, by_tls);
  try_all(Call::connect_error, {ECONNREFUSED}, 200, by_tls);
  try_all(Call::accept, {EMFILE, EINTR}, 200, by_tls);
  try_all(Call::send, {EINTR, EAGAIN, ECONNRESET, 0}, 200, by_tls);
  try_all(Call::receive, {EINTR, EAGAIN, ECONNRESET, 0}, 200, by_tls);
  try_all(Call::epoll_ctl, {ENOMEM}, 40, by_tls);
}
TEST_CASE("a fault at each call on unix sockets") {
  try_all(Call::socket, {EMFILE}, 200, by_unix_sockets);
  try_all(Call::connect, {ECONNREFUSED, EAGAIN, EINTR}, 200, by_unix_sockets);
  try_all(Call::accept, {EMFILE, EINTR}, 200, by_unix_sockets);
  try_all(Call::send, {EINTR, EAGAIN, ECONNRESET, 0}, 200, by_unix_sockets);
  try_all(Call::receive, {EINTR, EAGAIN, ECONNRESET, 0}, 200, by_unix_sockets);
}
