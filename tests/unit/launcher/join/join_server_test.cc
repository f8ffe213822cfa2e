#include "launcher/join/join_server.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "../../temp_folder.h"
#include "launcher/join/agent_packets.h"

namespace hvd::launcher {
namespace {

constexpr int turn_ms = 50;

int free_descriptor() {
  const Fd fd(::dup(STDERR_FILENO));
  return fd.get();
}

/// Allows the process @p more descriptors than it has.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(free_descriptor() + more), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

bool is_open(const Fd& link) {
  char byte;
  return ::recv(link.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/// UBSan's check of objects needs a pipe, and reports each object as invalid where no descriptor is left.
constexpr bool under_clangs_sanitizer =
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

TEST_CASE("join server: strangers' descriptors do not keep launch agents out; without any, the agent waits" *
          doctest::skip(under_clangs_sanitizer)) {
  const test::TempFolder folder;
  const std::string path = folder.path + "/agents";
  JoinServer server(0, join_keys_of(std::string(40, 'x')), path);
  const sockaddr_un address = socket_address(path);
  const auto connected = [&] {
    Fd link(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(link.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return link;
  };
  const Fd first = connected(), second = connected(), third = connected();
  {
    const FewDescriptors few(1);  // fewer than are held back for agents
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < 4; ++turn) server.turn(-1, turn_ms);
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(turn_ms));  // no spinning
    for (const Fd* link : {&first, &second, &third}) CHECK(is_open(*link));
  }
  CHECK(send_packet(third.get(), 'h', "w-1"));
  CHECK(send_packet(third.get(), 'e', ""));
  for (int turn = 0; turn < 4; ++turn) server.turn(-1, 1);
  CHECK_FALSE(is_open(third));  // read by now: no such host
  CHECK(is_open(first));
}

}  // namespace
}  // namespace hvd::launcher
