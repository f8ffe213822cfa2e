/// @file tcp_ranks.h — ranks as threads of one process, which reach each other by TCP.
#pragma once
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "transport/loopback.h"
#include "transport/tcp/tcp_transport.h"

namespace hvd::testing {

/// A sanitizer checks every byte, so fewer bytes test as much.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool under_sanitizer = true;
#else
inline constexpr bool under_sanitizer = false;
#endif

/// Ranks that @p meets connects.
inline transport::tcp::OpenResult open_tcp(transport::Transport& meets, const transport::tcp::TcpOptions& o) {
  transport::tcp::Doorway doorway = transport::tcp::open_doorway(o, meets.rank() == 0);
  transport::tcp::Neighbours n;
  n.rank = meets.rank();
  n.hosts = meets.host_of();
  n.exchange = [&](const std::string& text) { return exchange(meets, text, o.limit_seconds); };
  n.doorways = n.exchange(doorway.text);
  return transport::tcp::open(std::move(doorway), std::move(n), o);
}

/// TCP, though all ranks are on one host.
inline transport::tcp::TcpOptions by_tcp(int = 0) {
  transport::tcp::TcpOptions o;
  o.local_sockets = false;
  return o;
}
/// And encrypted.
inline transport::tcp::TcpOptions by_tls(int = 0) {
  transport::tcp::TcpOptions o = by_tcp();
  o.encrypts = true;
  return o;
}
/// Unix sockets alone.
inline transport::tcp::TcpOptions by_unix_sockets(int = 0) {
  transport::tcp::TcpOptions o;
  o.between_hosts = false;
  return o;
}

/// Runs f on every rank at once. @return the error of each rank, by rank; empty: none.
/// @p hosts  [size] of each rank; empty: all are on one
inline std::vector<std::string> run_tcp(int size, const std::function<void(transport::Transport&)>& f,
                                        const std::function<transport::tcp::TcpOptions(int)>& options = by_tcp,
                                        const std::vector<int>& hosts = {}) {
  const auto world =
      hosts.empty() ? transport::LoopbackWorld::make(size) : std::make_shared<transport::LoopbackWorld>(hosts);
  std::vector<std::string> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        transport::tcp::TcpOptions o = options(r);
        o.limit_seconds = std::min(o.limit_seconds, 10.0);
        const auto meets = world->open(r);
        const auto t = open_tcp(*meets, o).transport;
        f(*t);
      } catch (const std::exception& e) { failures[static_cast<std::size_t>(r)] = e.what(); }
    });
  for (std::thread& t : threads) t.join();
  return failures;
}

inline void check_none(const std::vector<std::string>& failures) {
  for (const std::string& f : failures) CHECK(f == "");
}

/// Waits for a ticket. Throws Error{timeout} after @p seconds, and the errors of the transport.
inline void await(transport::Transport& t, transport::Ticket ticket, double seconds = 20) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!t.test(ticket)) {
    if (std::chrono::steady_clock::now() > end) throw Error(Code::timeout, "test", "a message has not come");
    t.nap(1'000'000);
  }
}

inline transport::Message await(transport::Transport& t, transport::Tag tag, double seconds = 20) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (auto m = t.poll(tag)) return std::move(*m);
    if (!t.lost().empty()) throw Error(Code::peer_lost, "", t.lost().front().text);
    if (std::chrono::steady_clock::now() > end) throw Error(Code::timeout, "test", "a message has not come");
    t.nap(1'000'000);
  }
}

/// Bytes that encode their own place.
inline std::string pattern(std::size_t bytes, int seed) {
  std::string text(bytes, 0);
  for (std::size_t i = 0; i < bytes; ++i)
    text[i] = static_cast<char>((i * 31 + i / 251 + static_cast<std::size_t>(seed)) & 0xff);
  return text;
}

/// Each rank sends messages of all sizes to each other one, and receives as many. Throws if bytes differ.
inline void exchange_all(transport::Transport& t, const std::vector<std::size_t>& sizes) {
  struct Buffer {
    transport::Ticket ticket;
    std::string body, wanted;
  };
  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto give_up = [&] {
    for (auto& b : buffers) { t.abandon(b->ticket); }
  };
  try {
    for (int other = 0; other < t.size(); ++other) {
      if (other == t.rank()) continue;
      for (const std::size_t bytes : sizes) {
        auto in = std::make_unique<Buffer>();
        in->body.resize(bytes);
        in->wanted = pattern(bytes, other * 7 + t.rank());
        in->ticket = t.irecv(other, transport::Tag::data, in->body.data(), bytes);
        buffers.push_back(std::move(in));
        auto out = std::make_unique<Buffer>();
        out->body = out->wanted = pattern(bytes, t.rank() * 7 + other);
        out->ticket = t.isend(other, transport::Tag::data, out->body.data(), bytes);
        buffers.push_back(std::move(out));
      }
    }
    for (auto& b : buffers) {
      await(t, b->ticket);
      b->ticket = 0;
      if (b->body != b->wanted) throw Error(Code::internal, "test", "wrong bytes");
    }
  } catch (...) {
    give_up();
    throw;
  }
}

}  // namespace hvd::testing
