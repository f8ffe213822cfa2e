/// @file channel_pair.h — both ends of a channel, for tests.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "wire/channel/channel.h"

namespace hvd::test {

/// Asks @p done every few milliseconds, for at most @p limit.
inline bool eventually(const std::function<bool()>& done, std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return done();
}

struct ChannelPair {
  explicit ChannelPair(const std::string& bind)
      : listener(wire::listen({bind}, server, client.public_key)),
        connection(wire::connect({listener->addresses().at(0), server.public_key}, client)) {}

  // Serves both ends until a frame arrives: bytes that did not fit into the kernel's buffer are sent by a later call.
  wire::Listener::PeerFrame receive() {
    std::optional<wire::Listener::PeerFrame> r;
    REQUIRE(eventually([&] {
      if (connection) CHECK(!connection->receive());
      return (r = listener->receive()).has_value();
    }));
    return *r;
  }
  wire::Frame answer() {
    std::optional<wire::Frame> f;
    REQUIRE(eventually([&] {
      CHECK(!listener->receive());
      return (f = connection->receive()).has_value();
    }));
    return *f;
  }

  wire::KeyPair server = wire::KeyPair::generate(), client = wire::KeyPair::generate();
  std::unique_ptr<wire::Listener> listener;
  std::unique_ptr<wire::Connection> connection;
};

/// A new one; the files go when the program ends.
inline std::string socket_path(const char* scheme = "ipc://") {
  struct Files {
    std::vector<std::string> paths;
    ~Files() {
      for (const std::string& path : paths) unlink(path.c_str());
    }
  };
  static Files made;
  made.paths.push_back("/tmp/hvd-channel-test-" + std::to_string(getpid()) + "-" +
                       std::to_string(made.paths.size() + 1));
  return scheme + made.paths.back();
}

inline constexpr const char* both_kinds[] = {"ipc://", "unix://"};  ///< ZeroMQ's, and ours

}  // namespace hvd::test
