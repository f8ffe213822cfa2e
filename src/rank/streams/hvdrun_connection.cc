#include "rank/streams/hvdrun_connection.h"

#include <utility>

#include "base/network/interface_address.h"
#include "wire/channel/paths.h"

namespace hvd::rank {

void HvdrunConnection::begin(const std::vector<std::string>& addresses, const std::string& server_key,
                             const wire::KeyPair& client, std::vector<std::string> others) {
  client_ = client;
  others_ = std::move(others);
  for (const std::string& address : addresses) {
    endpoints_.push_back({address, server_key});
    attempts_.push_back(wire::connect(endpoints_.back(), client));
  }
}

void HvdrunConnection::begin(Fd socket) { attempts_.push_back(wire::connection_over(std::move(socket))); }

bool HvdrunConnection::connect() {
  if (connection_) return true;
  for (std::size_t i = 0; i < attempts_.size(); ++i)
    if (attempts_[i]->connected()) {
      keep(i);
      return true;
    }
  return false;
}

void HvdrunConnection::keep(std::size_t attempt) {
  connection_ = std::move(attempts_[attempt]);
  attempts_.clear();
  if (others_.empty()) return;
  const wire::Endpoint& used = endpoints_[attempt];
  std::vector<wire::OpenPath> paths;
  for (const std::string& address : in_other_networks(used.address, others_, interface_addresses()))
    paths.push_back({wire::connect({address, used.server_key, true}, client_), address});
  if (paths.empty()) return;
  paths.insert(paths.begin(), wire::OpenPath{std::move(connection_), used.address});
  connection_ = wire::over_paths(std::move(paths));
}

void HvdrunConnection::add_to(std::vector<pollfd>& fds, bool reads) const {
  if (connection_ && reads) fds.push_back({connection_->fd(), POLLIN, 0});
  for (const auto& attempt : attempts_) fds.push_back({attempt->fd(), POLLIN, 0});
}

}  // namespace hvd::rank
