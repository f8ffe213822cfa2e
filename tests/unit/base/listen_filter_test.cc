#include "base/network/listen_filter.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/file.h"
#include "base/network/listen_filter_program.h"

namespace hvd {
namespace {

Address address(const std::string& text) {
  Address found{};
  const std::string whole = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  REQUIRE(::inet_pton(AF_INET6, whole.c_str(), found.data()) == 1);
  return found;
}

constexpr unsigned char syn = 0x02, ack = 0x10;

/// Returns the kernel's verdict on a packet: interprets the filter.
bool lets_in(const std::vector<sock_filter>& code, const std::string& source, const std::string& target,
             unsigned char flags = syn) {
  unsigned char ip[40] = {}, tcp[20] = {};
  tcp[13] = flags;
  const Address from = address(source), to = address(target);
  if (source.find(':') == std::string::npos) {
    ip[0] = 0x45;
    std::memcpy(ip + 12, &from[12], 4);
    std::memcpy(ip + 16, &to[12], 4);
  } else {
    ip[0] = 0x60;
    std::memcpy(ip + 8, from.data(), 16);
    std::memcpy(ip + 24, to.data(), 16);
  }
  const auto byte_at = [&](std::uint32_t offset) {
    const std::uint32_t network = static_cast<std::uint32_t>(SKF_NET_OFF);
    return offset >= network ? ip + (offset - network) : tcp + (offset < 20 ? offset : 0);
  };
  std::uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = {};
  for (std::size_t at = 0; at < code.size(); ++at) {
    const sock_filter& one = code[at];
    const std::uint32_t right = BPF_SRC(one.code) == BPF_X ? x : one.k;
    switch (one.code) {
      case BPF_LD | BPF_B | BPF_ABS:
        a = *byte_at(one.k);
        break;
      case BPF_LD | BPF_W | BPF_ABS: {
        const unsigned char* const byte = byte_at(one.k);
        a = static_cast<std::uint32_t>(byte[0]) << 24 | byte[1] << 16 | byte[2] << 8 | byte[3];
        break;
      }
      case BPF_LD | BPF_MEM:
        a = memory[one.k];
        break;
      case BPF_ST:
        memory[one.k] = a;
        break;
      case BPF_MISC | BPF_TAX:
        x = a;
        break;
      case BPF_ALU | BPF_RSH | BPF_K:
        a >>= one.k;
        break;
      case BPF_JMP | BPF_JA:
        at += one.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
      case BPF_JMP | BPF_JEQ | BPF_X:
        at += a == right ? one.jt : one.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        at += a >= right ? one.jt : one.jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        at += a > right ? one.jt : one.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        at += (a & right) != 0 ? one.jt : one.jf;
        break;
      case BPF_RET | BPF_K:
        return one.k != 0;
      default:
        FAIL("unknown instruction " << one.code);
    }
  }
  FAIL("the filter has no end");
  return false;
}

TEST_CASE("listen filter: with no address named, only this machine gets in") {
  const auto code = let_in({});
  CHECK(lets_in(code, "127.0.0.1", "127.0.0.1"));
  CHECK(lets_in(code, "127.3.0.1", "127.0.0.1"));
  CHECK(lets_in(code, "10.0.0.1", "10.0.0.1"));
  CHECK(lets_in(code, "::1", "::1"));
  CHECK(lets_in(code, "fd00::7", "fd00::7"));
  CHECK_FALSE(lets_in(code, "10.0.0.2", "10.0.0.1"));
  CHECK_FALSE(lets_in(code, "10.0.0.2", "10.0.0.1", ack));
  CHECK_FALSE(lets_in(code, "fd00::8", "fd00::7"));
}

TEST_CASE("listen filter: those named get in, others open no connection") {
  const auto code = let_in({address("10.0.0.2"), address("192.168.7.1"), address("fd00::8"), address("fe80::1:2")});
  for (const char* source : {"10.0.0.2", "192.168.7.1", "127.0.0.1", "10.0.0.1"})
    CHECK(lets_in(code, source, "10.0.0.1"));
  for (const char* source : {"fd00::8", "fe80::1:2", "fd00::7"}) CHECK(lets_in(code, source, "fd00::7"));
  for (const char* source : {"10.0.0.3", "192.168.7.0", "192.168.7.2", "0.0.0.0", "255.255.255.255"})
    CHECK_FALSE(lets_in(code, source, "10.0.0.1"));
  for (const char* source : {"fd00::9", "fe80::1:3", "fe80::", "fd00:0:0:1::8"})
    CHECK_FALSE(lets_in(code, source, "fd00::7"));
  CHECK(lets_in(code, "10.0.0.3", "10.0.0.1", ack));
  CHECK(lets_in(code, "fd00::9", "fd00::7", ack));
  CHECK_FALSE(lets_in(code, "10.0.0.3", "10.0.0.1", syn | ack));
  // A list of IPv4 addresses refuses all IPv6 peers, and vice versa.
  CHECK_FALSE(lets_in(let_in({address("10.0.0.2")}), "fd00::9", "fd00::7"));
  CHECK_FALSE(lets_in(let_in({address("fd00::9")}), "10.0.0.3", "10.0.0.1"));
}

TEST_CASE("listen filter: thousands of addresses all get in, and the kernel takes the filter") {
  std::vector<Address> many;
  for (int i = 0; i < 4000; ++i)
    many.push_back(
        address("10." + std::to_string(i % 7) + "." + std::to_string(i / 200) + "." + std::to_string(1 + i % 200)));
  SUBCASE("") {}
  SUBCASE("IPv6 too") {
    for (int i = 0; i < 90; ++i) many.push_back(address("fd00:" + std::to_string(i) + "::8"));
  }
  SUBCASE("with very many networks") {
    for (int i = 0; i < 2000; ++i) many.push_back(address("fd00:" + std::to_string(i) + "::8"));
  }
  const auto code = let_in(many);
  for (std::size_t i = 0; i < many.size(); i += 7) {
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET6, many[i].data(), text, sizeof text);
    const std::string source = text;
    const bool four = source.starts_with("::ffff:");
    CHECK(lets_in(code, four ? source.substr(7) : source, four ? "10.9.9.9" : "fd00::7"));
  }
  CHECK_FALSE(lets_in(code, "11.0.0.1", "10.9.9.9"));
  const Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return;  // this machine has no IPv6
  std::vector<sock_filter> copy = code;
  const sock_fprog program{static_cast<unsigned short>(copy.size()), copy.data()};
  CHECK(::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

/// Listens on all addresses.
Fd listener(std::uint16_t& port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), size) == 0);
  REQUIRE(::listen(socket.get(), 5) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&any), &size) == 0);
  port = ntohs(any.sin_port);
  return socket;
}

TEST_CASE("listen filter: what was open before is left alone, and this machine still gets in") {
  std::uint16_t port = 0;
  const Fd first = listener(port);
  const auto before = open_listeners();
  CHECK(before.size() >= 1);
  const Fd second = listener(port);
  CHECK(open_listeners().size() == before.size() + 1);
  CHECK(restrict_listeners(before, {address("203.0.113.9")}) == 1);
  const Fd caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(caller.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
}

TEST_CASE("listen filter: own addresses have no loopback") {
  const auto own = own_addresses();
  REQUIRE(own);
  CHECK(std::find(own->begin(), own->end(), address("127.0.0.1")) == own->end());
  CHECK(std::find(own->begin(), own->end(), address("::1")) == own->end());
}

}  // namespace
}  // namespace hvd
