#include "launcher/spark/relay.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"
#include "options/variable.h"
#include "wire/channel/channel.h"
#include "wire/messages/message.h"

namespace hvd::launcher {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto reach_limit = std::chrono::seconds(10);
constexpr auto lost_limit = std::chrono::seconds(3);
constexpr std::size_t most_piece_bytes = 256u << 10, piece_header_bytes = 5;

std::uint16_t number_of(wire::Type type) { return static_cast<std::uint16_t>(type); }

/// The arguments after the parent's process id.
std::vector<std::string> after_parent(const std::vector<std::string>& args, const char* word) {
  const auto parent = args.size() < 2 ? std::nullopt : to_integer(args[0]);
  if (!parent) throw Error(Code::usage, word, "is for hvd.spark's use");
  end_with_parent(static_cast<int>(*parent));
  ::signal(SIGPIPE, SIG_IGN);
  return {args.begin() + 1, args.end()};
}

std::string from_environment(options::AnyVariable name) { return std::string(options::text_of(name)); }

/// Turns stdin into frames.
class StdinFrames {
 public:
  /// Sends without waiting; false while the connection takes no more.
  bool send(wire::Connection& to) {
    for (;;) {
      if (!next_) next_ = take_piece(waiting_);
      if (!next_) return true;
      if (!to.send({number_of(wire::Type::output), *next_})) return false;
      next_.reset();
    }
  }
  /// Blocks until stdin has bytes; false at its end.
  bool read() {
    std::string piece(64 << 10, '\0');
    const ssize_t n = ::read(0, piece.data(), piece.size());
    if (n > 0) waiting_.append(piece, 0, static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && errno == EINTR);
  }

 private:
  std::string waiting_;
  std::optional<std::string> next_;
};

/// Passes stdin on.  @p ended is set once the connection has taken all of it.
bool pass_on(wire::Connection& connection, StdinFrames& out, bool& open) {
  const bool room = connection.connected() && out.send(connection);
  pollfd on[2] = {{connection.fd(), POLLIN, 0}, {0, POLLIN, 0}};
  ::poll(on, room && open ? 2 : 1, 100);
  if (room && open && on[1].revents) open = out.read();
  return room && !open && out.send(connection);
}

}  // namespace

std::optional<std::string> take_piece(std::string& waiting) {
  if (waiting.size() < piece_header_bytes) return std::nullopt;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < 4; ++i) bytes |= std::size_t{static_cast<unsigned char>(waiting[1 + i])} << (8 * i);
  if (bytes > most_piece_bytes) throw Error(Code::usage, "--relay-send", "a piece of output is too long");
  if (waiting.size() < piece_header_bytes + bytes) return std::nullopt;
  std::string body = waiting.substr(0, 1) + waiting.substr(piece_header_bytes, bytes);
  waiting.erase(0, piece_header_bytes + bytes);
  return body;
}

int relay_listen(const std::vector<std::string>& args) {
  std::vector<std::string> bind = after_parent(args, "--relay-listen");
  const auto results_fd = to_integer(bind[0]);
  if (!results_fd || bind.size() < 2) throw Error(Code::usage, "--relay-listen", "is for hvd.spark's use");
  bind.erase(bind.begin());
  const wire::KeyPair server = wire::KeyPair::generate(), client = wire::KeyPair::generate();
  const auto listener = wire::listen(bind, server, client.public_key);
  const nlohmann::json about = {{"addresses", listener->addresses()},
                                {"server_key", server.public_key},
                                {"client_keys", client.public_key + ":" + client.secret_key}};
  std::printf("%s\n", about.dump().c_str());
  std::fflush(stdout);
  for (;;) {
    while (const auto got = listener->receive()) {
      if (got->frame.type == number_of(wire::Type::release)) {
        listener->send(got->from, got->frame);  // tells the sender that all has come
        return 0;
      }
      if (got->frame.type != number_of(wire::Type::output) || got->frame.body.empty()) continue;
      const char stream = got->frame.body[0];
      const int to = stream == 3 ? static_cast<int>(*results_fd) : stream == 2 ? 2 : 1;
      if (!write_all(to, std::string_view(got->frame.body).substr(1))) return 4;
    }
    if (listener->gone()) return 4;
    pollfd on{listener->fd(), POLLIN, 0};
    ::poll(&on, 1, 200);
  }
}

int relay_send(const std::vector<std::string>& args) {
  const std::vector<std::string> addresses = after_parent(args, "--relay-send");
  const std::string keys = from_environment("HVD_RELAY_KEYS");
  if (keys.size() != 81) throw Error(Code::usage, "--relay-send", "HVD_RELAY_KEYS is not a pair of keys");
  ::unsetenv("HVD_RELAY_KEYS");
  const auto connection =
      wire::connect({addresses[0], from_environment("HVD_RELAY_SERVER_KEY")}, {keys.substr(0, 40), keys.substr(41)});
  const auto began = Clock::now();
  StdinFrames out;
  bool open = true, said_all = false;
  for (;;) {
    if (!connection->connected() && Clock::now() - began > reach_limit) return 4;
    if (const auto lost = connection->lost_for(); lost && connection->connected() && *lost > lost_limit) return 4;
    if (!said_all && pass_on(*connection, out, open)) said_all = connection->send({number_of(wire::Type::release), {}});
    while (const auto frame = connection->receive())
      if (frame->type == number_of(wire::Type::release)) return 0;
    if (!said_all) continue;
    pollfd on{connection->fd(), POLLIN, 0};
    ::poll(&on, 1, 100);
  }
}

}  // namespace hvd::launcher
