/// More connections than there are descriptors.
#include "wire/channel/bounded_accept.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "channel_pair.h"

using namespace hvd;
using namespace hvd::wire;
using namespace hvd::test;
using namespace std::chrono_literals;

namespace {

/// While one lives: @p count connections to @p port of this host, made and held by another process.
class HalfOpen {
 public:
  HalfOpen(int port, int count) {
    REQUIRE(pipe(ends_) == 0);
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) hold(port, count);
    char done = 0;
    REQUIRE(read(ends_[0], &done, 1) == 1);
    REQUIRE(done == 'y');
  }
  ~HalfOpen() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(ends_[0]), close(ends_[1]);
  }

 private:
  [[noreturn]] void hold(int port, int count) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    close_range(3, static_cast<unsigned>(ends_[1]) - 1, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool good = true;
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      good = good && fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    if (write(ends_[1], good ? "y" : "n", 1) == 1 && good) pause();
    _exit(0);
  }
  int ends_[2] = {-1, -1};
  pid_t child_ = -1;
};

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists();
  return count;
}

}  // namespace

TEST_CASE("channel: connections that say nothing leave descriptors to others, and make room for guards") {
  const KeyPair server = KeyPair::generate(), client = KeyPair::generate();
  const auto listener = wire::listen({socket_path(), "tcp://127.0.0.1:*"}, server, client.public_key);
  const std::vector<std::string> addresses = listener->addresses();
  std::vector<std::unique_ptr<Connection>> guards;
  const auto guard_comes = [&](Connection& guard) {
    return eventually([&] {
      CHECK(!listener->receive());
      return guard.connected();
    });
  };
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(open_descriptors()) + 150;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  {
    const HalfOpen strangers(std::stoi(addresses.at(1).substr(addresses.at(1).rfind(':') + 1)), 300);
    CHECK(eventually([&] { return open_descriptors() > static_cast<int>(few.rlim_cur) - 100; }));
    std::this_thread::sleep_for(50ms);  // libzmq's thread accepts the waiting connections
    CHECK(open_descriptors() < static_cast<int>(few.rlim_cur) - 50);
    // Over the unix socket too, where libzmq would abort for want of a descriptor.
    for (const std::string& address : addresses) guards.push_back(wire::connect({address, server.public_key}, client));
    for (const auto& guard : guards) CHECK(guard_comes(*guard));
  }
  {
    // A guard that has proved the key stays connected, also with many strangers.
    const HalfOpen strangers(std::stoi(addresses.at(1).substr(addresses.at(1).rfind(':') + 1)), 300);
    const auto late = wire::connect({addresses.at(1), server.public_key}, client);
    CHECK(guard_comes(*late));
    for (const auto& guard : guards) {
      CHECK(guard->connected());
      CHECK(!guard->lost_for());
    }
  }
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}
