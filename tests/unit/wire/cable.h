/// @file cable.h — a TCP connection that a test can cut, with the loss of the bytes on their way.
#pragma once
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hvd::test {

/// Listens on an address of its own, and connects each caller to @p far.  The threads end with the object.
class Cable {
 public:
  /// @param near  an IPv4 address, without a port
  /// @param far   "tcp://127.0.1.1:4123"
  Cable(const std::string& near, const std::string& far) : far_(far) {
    sockaddr_in own = address_of(near, 0);
    socklen_t size = sizeof own;
    REQUIRE(::bind(door_, reinterpret_cast<sockaddr*>(&own), size) == 0);
    REQUIRE(::listen(door_, 16) == 0);
    REQUIRE(::getsockname(door_, reinterpret_cast<sockaddr*>(&own), &size) == 0);
    address_ = "tcp://" + near + ":" + std::to_string(ntohs(own.sin_port));
    acceptor_ = std::thread([this] { accept_callers(); });
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;
  ~Cable() {
    ::shutdown(door_, SHUT_RDWR);
    acceptor_.join();
    cut();
    for (std::thread& copier : copiers_) copier.join();
    for (const Line& line : lines_) ::close(line.near), ::close(line.far);
    ::close(door_);
  }

  /// For the caller.
  const std::string& address() const { return address_; }
  /// Connections so far.
  std::size_t callers() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }
  /// Takes bytes from both ends of each present connection, and passes none on.
  void hold() {
    const std::lock_guard lock(mutex_);
    for (Line& line : lines_) line.is_held = true;
  }
  /// Ends each present connection.  Bytes on their way are lost.
  void cut() {
    hold();
    const std::lock_guard lock(mutex_);
    for (const Line& line : lines_) ::shutdown(line.near, SHUT_RDWR), ::shutdown(line.far, SHUT_RDWR);
  }

 private:
  struct Line {
    Line(int near_end, int far_end) : near(near_end), far(far_end) {}
    const int near, far;
    std::atomic<bool> is_held = false;
  };

  static sockaddr_in address_of(const std::string& host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1);
    return address;
  }

  void accept_callers() {
    for (int near; (near = ::accept4(door_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      const std::size_t colon = far_.rfind(':');
      const sockaddr_in to = address_of(far_.substr(6, colon - 6), std::stoi(far_.substr(colon + 1)));
      const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(far, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) ::shutdown(near, SHUT_RDWR);
      const std::lock_guard lock(mutex_);
      Line& line = lines_.emplace_back(near, far);
      copiers_.emplace_back([&line] { copy(line, line.near, line.far); });
      copiers_.emplace_back([&line] { copy(line, line.far, line.near); });
    }
  }

  static void copy(const Line& line, int from, int to) {
    std::array<char, 64 << 10> bytes;
    for (ssize_t got; (got = ::recv(from, bytes.data(), bytes.size(), 0)) > 0;)
      for (ssize_t sent = 0, n = 0; sent < got && !line.is_held; sent += n)
        if ((n = ::send(to, bytes.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL)) < 0) return;
    ::shutdown(to, SHUT_WR);
  }

  const std::string far_;
  std::string address_;
  const int door_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::mutex mutex_;  ///< of lines_ and copiers_
  std::list<Line> lines_;
  std::vector<std::thread> copiers_;
  std::thread acceptor_;
};

}  // namespace hvd::test
