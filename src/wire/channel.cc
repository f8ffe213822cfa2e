#include "channel.h"

#include <sys/random.h>

#include "base/error.h"
#include "transports.h"

namespace hvd::wire {
namespace {

constexpr std::string_view local = "unix://";

/// 40 of the characters that Z85 has too: 200 bits.
std::string random_word() {
  unsigned char bytes[40];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw Error(Code::unavailable, "getrandom", "gave no bytes");
  std::string word;
  for (const unsigned char b : bytes) word += "abcdefghijklmnopqrstuvwxyz012345"[b & 31];
  return word;
}

}  // namespace

KeyPair KeyPair::generate() { return new_curve_keys(); }

KeyPair KeyPair::for_this_host() { return {random_word(), random_word()}; }

std::unique_ptr<Listener> listen(const std::vector<std::string>& bind, const KeyPair& server,
                                 const std::string& client_public_key) {
  if (bind.size() == 1 && bind[0].starts_with(local))
    return listen_locally(bind[0].substr(local.size()), client_public_key);
  return listen_on_network(bind, server, client_public_key);
}

std::unique_ptr<Connection> connect(const Endpoint& endpoint, const KeyPair& client) {
  if (endpoint.address.starts_with(local)) return connect_locally(endpoint.address.substr(local.size()), client);
  return connect_over_network(endpoint, client);
}

}  // namespace hvd::wire
