#include "pmix/gate.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"

using namespace hvd;

namespace {

std::uint64_t inode_of(int fd) {
  struct stat about {};
  REQUIRE(::fstat(fd, &about) == 0);
  return about.st_ino;
}

/// A connection over loopback: the side that connected, and the side that accepted.
struct Pair {
  Fd client, server;
  Pair() {
    const Fd door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    auto* const address = reinterpret_cast<sockaddr*>(&here);
    REQUIRE(::bind(door.get(), address, size) == 0);
    REQUIRE(::listen(door.get(), 1) == 0);
    REQUIRE(::getsockname(door.get(), address, &size) == 0);
    client = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), address, size) == 0);
    server = Fd(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
};

}  // namespace

TEST_CASE("gate: the kernel names the socket at the other end") {
  const Pair pair;
  CHECK(pmix::peer_inode(pair.server.get()) == inode_of(pair.client.get()));
  CHECK(pmix::peer_inode_by_table(pair.server.get()) == inode_of(pair.client.get()));
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Fd one(ends[0]), other(ends[1]);
  CHECK(pmix::peer_inode(one.get()) == 0);  // no TCP
}

TEST_CASE("gate: another user's socket, and a closed one, have no owner, and the table is not read for it") {
  Pair own;
  if (!pmix::peer_inode_by_diag(own.server.get())) {
    MESSAGE("this kernel has no sock_diag");
    return;
  }
  own.client.reset();
  CHECK(pmix::peer_inode(own.server.get()) == 0);
  if (::geteuid() != 0) {
    MESSAGE("a socket of another user needs root");
    return;
  }
  REQUIRE(::seteuid(12345) == 0);
  const Pair foreign;
  REQUIRE(::seteuid(0) == 0);
  CHECK(pmix::peer_inode_by_diag(foreign.server.get()) == std::optional<std::uint64_t>(0));
  CHECK(pmix::peer_inode(foreign.server.get()) == 0);
}

TEST_CASE("gate: a socket is a descendant's where a process below has it, and only then") {
  const Pair pair;
  const std::uint64_t inode = inode_of(pair.client.get());
  CHECK_FALSE(pmix::is_held_below(::getpid(), inode));  // only this process has it
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const Fd read_end(ready[0]), write_end(ready[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (grandchild != 0) ::close(pair.client.get());
    [[maybe_unused]] const ssize_t n = ::write(write_end.get(), "x", 1);
    for (;;) ::pause();
  }
  char both[2];
  for (int got = 0; got < 2;) {
    const ssize_t n = ::read(read_end.get(), both, sizeof both);
    REQUIRE(n > 0);
    got += static_cast<int>(n);
  }
  CHECK(pmix::is_held_below(::getpid(), inode));
  CHECK_FALSE(pmix::is_held_below(::getpid(), inode + 1000000));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
