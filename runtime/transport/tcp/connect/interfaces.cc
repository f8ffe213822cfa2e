#include "transport/tcp/connect/interfaces.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "transport/tcp/connect/listen_address.h"

namespace hvd::transport::tcp {
namespace {

constexpr int too_slow = 8;  ///< networks that are slower than the fastest by this factor are not used

Address network_of(const CardAddress& a) {
  Address network = a.at;
  for (int i = a.bits; i < 128; ++i) {
    auto& byte = network[static_cast<std::size_t>(i / 8)];
    byte = static_cast<std::uint8_t>(byte & ~(0x80 >> i % 8));
  }
  return network;
}

int slower(int a, int b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

}  // namespace

std::string CardAddress::text() const {
  return to_text(at) + "/" + std::to_string(bits) + "/" + std::to_string(megabits) + "/" + card;
}

std::optional<CardAddress> CardAddress::of(const std::string& word) {
  const std::vector<std::string> parts = hvd::split(word, '/');
  if (parts.size() != 4) return std::nullopt;
  const auto at = address_of_text(parts[0]);
  const auto bits = to_integer(parts[1]), megabits = to_integer(parts[2]);
  if (!at || !bits || *bits < 0 || *bits > 128 || !megabits || *megabits < 0 || *megabits > 1'000'000'000)
    return std::nullopt;
  return CardAddress{*at, static_cast<int>(*bits), static_cast<int>(*megabits), parts[3]};
}

int megabits_of(const std::string& card) {
  ifreq request{};
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  if (card.size() >= sizeof request.ifr_name) return 0;
  card.copy(request.ifr_name, card.size());
  request.ifr_data = reinterpret_cast<char*>(&settings);
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any || ::ioctl(any.get(), SIOCETHTOOL, &request) != 0) return 0;
  const std::uint32_t speed = ethtool_cmd_speed(&settings);  // all ones: unknown to the driver
  return speed <= 1'000'000'000 ? static_cast<int>(speed) : 0;
}

std::vector<SharedNetwork> shared_networks(const std::vector<CardAddress>& own,
                                           const std::vector<CardAddress>& theirs) {
  std::vector<SharedNetwork> all;
  for (const CardAddress& o : own)
    for (const CardAddress& t : theirs)
      if (o.bits == t.bits && o.at != t.at && network_of(o) == network_of(t))
        all.push_back({o, t, slower(o.megabits, t.megabits)});
  const auto place = [](const SharedNetwork& n) {  // the same order at both ends
    return std::tuple(-n.megabits, network_of(n.own), std::min(n.own.at, n.theirs.at), std::max(n.own.at, n.theirs.at));
  };
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::set<std::string> own_cards, their_cards;
  std::vector<SharedNetwork> taken;
  for (SharedNetwork& n : all) {
    const bool late = n.megabits > 0 && !taken.empty() && n.megabits < taken[0].megabits / too_slow;
    if (late || own_cards.count(n.own.card) > 0 || their_cards.count(n.theirs.card) > 0) continue;
    own_cards.insert(n.own.card);
    their_cards.insert(n.theirs.card);
    taken.push_back(std::move(n));
  }
  return taken;
}

std::string to_text(const SharedNetwork& network) {
  if (network.megabits == 0) return network.own.card;
  const std::string rate = network.megabits % 1000 == 0 ? std::to_string(network.megabits / 1000) + " Gbit/s"
                                                        : std::to_string(network.megabits) + " Mbit/s";
  return network.own.card + " (" + rate + ")";
}

}  // namespace hvd::transport::tcp
