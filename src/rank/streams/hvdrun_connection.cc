#include "rank/streams/hvdrun_connection.h"

namespace hvd::rank {

void HvdrunConnection::begin(const std::vector<std::string>& addresses, const std::string& server_key,
                             const wire::KeyPair& client) {
  for (const std::string& address : addresses) attempts_.push_back(wire::connect({address, server_key}, client));
}

void HvdrunConnection::begin(Fd socket) { attempts_.push_back(wire::connection_over(std::move(socket))); }

bool HvdrunConnection::connect() {
  if (connection_) return true;
  for (auto& attempt : attempts_)
    if (attempt->connected()) {
      connection_ = std::move(attempt);
      attempts_.clear();
      return true;
    }
  return false;
}

void HvdrunConnection::add_to(std::vector<pollfd>& fds, bool reads) const {
  if (connection_ && reads) fds.push_back({connection_->fd(), POLLIN, 0});
  for (const auto& attempt : attempts_) fds.push_back({attempt->fd(), POLLIN, 0});
}

}  // namespace hvd::rank
