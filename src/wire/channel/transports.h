/// @file transports.h — the implementations among which channel.cc chooses.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "channel.h"

namespace hvd::wire {

// local_channel.cc.  @p path: of the socket, without "unix://".
std::unique_ptr<Listener> listen_locally(const std::string& path, const std::string& client_public_key);
std::unique_ptr<Connection> connect_locally(const std::string& path, const KeyPair& client);

// zmq_channel.cc.
KeyPair new_curve_keys();
KeyPair derived_curve_keys(const std::string& hex_digest);
std::unique_ptr<Listener> listen_on_network(const std::vector<std::string>& bind, const KeyPair& server,
                                            const std::string& client_public_key);
std::unique_ptr<Connection> connect_over_network(const Endpoint& endpoint, const KeyPair& client);

}  // namespace hvd::wire
