/// Addresses of network interfaces, and the networks that another host shares.
#include "base/network/interface_address.h"

#include <doctest/doctest.h>

using namespace hvd;

namespace {

InterfaceAddress at(const std::string& interface, const std::string& address, int bits) {
  return {interface, address_in(address).value(), bits};
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("interface addresses: texts and networks") {
  CHECK(at("a", "10.0.0.1", 120).text() == "10.0.0.1");
  CHECK(at("a", "tcp://[fd00::1]:77", 64).text() == "fd00::1");
  CHECK(address_in("tcp://10.0.0.1:4123") == address_in("10.0.0.1"));
  CHECK_FALSE(address_in("tcp://host:4123"));
  CHECK_FALSE(address_in(""));
  const InterfaceAddress four = at("eth0", "10.77.0.1", 120), six = at("eth0", "fd00:78::1", 64);
  CHECK(four.is_near(*address_in("10.77.0.9")));
  CHECK_FALSE(four.is_near(*address_in("10.78.0.9")));
  CHECK(six.is_near(*address_in("fd00:78::9")));
  CHECK_FALSE(six.is_near(*address_in("10.77.0.9")));
}

TEST_CASE("interface addresses: those of this host have names and no loopback") {
  for (const InterfaceAddress& a : interface_addresses()) {
    CHECK_FALSE(a.interface.empty());
    CHECK(a.bits > 0);
    CHECK(a.is_near(a.at));
    CHECK_FALSE(a.text().starts_with("127."));
  }
}

TEST_CASE("interface addresses: a word means an interface or a network") {
  const InterfaceAddress a = at("eth1", "10.78.0.1", 120), six = at("eth1", "fd00:78::1", 64);
  CHECK(is_meant("eth1", a.interface, a.at));
  CHECK_FALSE(is_meant("eth", a.interface, a.at));
  CHECK(is_meant("10.78.0.0/16", a.interface, a.at));
  CHECK_FALSE(is_meant("10.77.0.0/16", a.interface, a.at));
  CHECK(is_meant("fd00:78::/32", six.interface, six.at));
  CHECK_FALSE(is_meant("10.78.0.0/99", six.interface, six.at));
  CHECK_FALSE(is_meant("10.78.0.0/x", a.interface, a.at));
}

TEST_CASE("interface addresses: an address is named with its interface, if that is here") {
  const std::vector<InterfaceAddress> own = {at("eth0", "10.77.0.2", 120), at("eth1", "fd00:78::2", 64)};
  CHECK(text_with_interface("tcp://10.77.0.2:4123", own) == "10.77.0.2 (eth0 here)");
  CHECK(text_with_interface("tcp://[fd00:78::2]:1", own) == "fd00:78::2 (eth1 here)");
  CHECK(text_with_interface("tcp://10.99.0.1:4123", own) == "10.99.0.1");
}

TEST_CASE("interface addresses: one in each network that is not in use") {
  const std::vector<InterfaceAddress> own = {at("eth0", "10.77.0.2", 120), at("eth1", "10.78.0.2", 120),
                                             at("eth2", "10.79.0.2", 120), at("docker0", "172.17.0.1", 112)};
  const std::string used = "tcp://10.77.0.1:1", second = "tcp://10.78.0.1:2", third = "tcp://10.79.0.1:3";
  CHECK(in_other_networks(used, {used, second, third}, own) == Texts{second, third});
  CHECK(in_other_networks(second, {used, second}, own) == Texts{used});
  CHECK(in_other_networks(used, {second, "tcp://10.78.0.9:9"}, own) == Texts{second});          // one for an interface
  CHECK(in_other_networks(used, {"tcp://172.17.0.1:4", "tcp://10.80.0.1:5"}, own) == Texts{});  // ours; not shared
  CHECK(in_other_networks("tcp://192.168.1.1:1", {used, second}, own) == Texts{used, second});  // by a router
  CHECK(in_other_networks(used, {used, "tcp://10.77.0.3:1"}, own) == Texts{});
}
