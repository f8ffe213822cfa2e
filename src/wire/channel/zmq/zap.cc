#include "zap.h"

#include <csignal>
#include <vector>

namespace hvd::wire {
namespace {

/// One ZAP request: version, request id, domain, address, identity, mechanism, credentials.
std::vector<std::string> receive_request(const zmq::Socket& s) {
  std::vector<std::string> parts;
  for (;;) {
    zmq::MessagePart part;
    if (!part.receive(s, 0)) return {};
    parts.push_back(part.text());
    if (!part.more()) return parts;
  }
}

void reply(const zmq::Socket& s, const std::string& id, bool allow) {
  const std::string parts[] = {"1.0", id, allow ? "200" : "400", allow ? "OK" : "unknown key", "guard", ""};
  for (int i = 0; i < 6; ++i) zmq::lib().send(s.get(), parts[i].data(), parts[i].size(), i < 5 ? ZMQ_SNDMORE : 0);
}

}  // namespace

ZapHandler::ZapHandler(const zmq::Context& context, const std::string& allowed)
    : socket_(zmq::make_socket(context, ZMQ_REP)), allowed_(32, '\0') {
  if (allowed.size() != 40 ||
      zmq::lib().z85_decode(reinterpret_cast<std::uint8_t*>(allowed_.data()), allowed.c_str()) == nullptr)
    throw Error(Code::usage, "listen", "the client's public key is not 40 characters of Z85");
  zmq::set(socket_, ZMQ_LINGER, 0);
  zmq::check(zmq::lib().bind(socket_.get(), "inproc://zeromq.zap.01"), "zmq_bind");
  // Signals are the owner's business: the thread starts with all of them blocked.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ZapHandler::~ZapHandler() { thread_.join(); }

void ZapHandler::serve() {
  try {
    for (;;) {
      const std::vector<std::string> request = receive_request(socket_);
      if (request.empty()) break;  // the context ends
      const bool known = request.size() == 7 && request[0] == "1.0" && request[5] == "CURVE";
      reply(socket_, request.size() > 1 ? request[1] : "", known && request[6] == allowed_);
    }
  } catch (const std::exception&) {
    // Without an answer ZeroMQ admits no peer.
  }
  socket_.reset();
}

}  // namespace hvd::wire
