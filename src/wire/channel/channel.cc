#include "channel.h"

#include "base/random.h"
#include "paths.h"
#include "relayed_frame.h"
#include "transports.h"

namespace hvd::wire {
namespace {

constexpr std::string_view local = "unix://";

/// Letters that Z85 has too: 200 bits.
constexpr std::size_t word_letters = 40;

}  // namespace

KeyPair KeyPair::generate() { return new_curve_keys(); }

KeyPair KeyPair::derived_from(const std::string& hex_digest) { return derived_curve_keys(hex_digest); }

KeyPair KeyPair::for_this_host() { return {random_letters(word_letters), random_letters(word_letters)}; }

std::unique_ptr<Listener> listen(const std::vector<std::string>& bind, const KeyPair& server,
                                 const std::string& client_public_key) {
  if (bind.size() == 1 && bind[0].starts_with(local))
    return listen_locally(bind[0].substr(local.size()), client_public_key);
  return with_relays(with_paths(listen_on_network(bind, server, client_public_key)));
}

std::unique_ptr<Connection> connect(const Endpoint& endpoint, const KeyPair& client) {
  if (endpoint.address.starts_with(local)) return connect_locally(endpoint.address.substr(local.size()), client);
  return connect_over_network(endpoint, client);
}

}  // namespace hvd::wire
