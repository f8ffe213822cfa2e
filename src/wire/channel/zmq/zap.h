/// @file zap.h — admits exactly one CURVE key to a listener.
///
/// ZeroMQ asks the handler about each new peer, before it accepts a message of the peer (ZeroMQ's RFC 27, ZAP).  So
/// nothing is interpreted before the peer is authenticated.  The handler is a thread, because it must answer while the
/// listener's owner is busy.
#pragma once
#include <string>
#include <thread>

#include "zmq_socket.h"

namespace hvd::wire {

class ZapHandler {
 public:
  /// Bound before the constructor returns: create it before binding the listener.
  /// @p allowed  the client's public key, 40 characters of Z85.
  ZapHandler(const zmq::Context& context, const std::string& allowed);
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;
  /// Ends the thread; the context must have been shut down (zmq_ctx_shutdown) before.
  ~ZapHandler();

 private:
  void serve();

  zmq::Socket socket_;
  std::string allowed_;  ///< 32 bytes
  std::thread thread_;
};

}  // namespace hvd::wire
