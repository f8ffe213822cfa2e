#include "transport/tcp/connect/pending_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "memory/futex.h"

namespace hvd::transport::tcp {
namespace {

constexpr std::int64_t one_address_ns = 2'000'000'000;

void set(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

/// Sets the options of a TCP connection.  TCP_NODELAY sends small messages immediately.  Keepalive probes the other
/// end's kernel once a second, so that Messages::silent() notices a missing answer.  Only TCP_USER_TIMEOUT decides when
/// the connection ends.
void set_options(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, given_up_ms / 1000);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, given_up_ms);
}

}  // namespace

PendingLink::PendingLink(SocketCalls& calls, const KeyContext* context, const Caller& caller,
                         std::vector<CallAddress> addresses, std::int64_t now_ns, std::int64_t handshake_ns)
    : calls_(calls),
      context_(context),
      calls_peer_(true),
      caller_(caller),
      addresses_(std::move(addresses)),
      handshake_ns_(handshake_ns),
      reached_(addresses_.size()),
      at_(addresses_.size() - 1) {
  next(now_ns);
}

PendingLink::PendingLink(SocketCalls& calls, const KeyContext* context, Fd fd)
    : calls_(calls), context_(context), calls_peer_(false), fd_(std::move(fd)) {
  if (!is_local()) set_options(fd_.get());
}

std::unique_ptr<Handshake> PendingLink::new_handshake() const {
  if (is_local()) return calls_peer_ ? std::make_unique<Handshake>(caller_) : std::make_unique<Handshake>();
  return calls_peer_ ? std::make_unique<Handshake>(*context_, caller_) : std::make_unique<Handshake>(*context_);
}

void PendingLink::next(std::int64_t now_ns) {
  at_ = (at_ + 1) % addresses_.size();
  rounds_ += at_ == 0 ? 1 : 0;
  handshake_.reset();
  out_.clear();
  refused_ = false;
  connecting_ = true;
  slow_ns_ = now_ns + rounds_ * one_address_ns;
  const CallAddress& to = addresses_[at_];
  fd_ = Fd(calls_.socket(to.at.ss_family));
  if (!fd_) {
    refused_ = true;
    why_ = errno_text(errno);
    return;
  }
  if (!is_local()) set_options(fd_.get());
  if (!to.card.empty())  // else routing may choose another interface; errors are ignored
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_BINDTODEVICE, to.card.c_str(), static_cast<socklen_t>(to.card.size() + 1));
  if (calls_.connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to.at), to.bytes) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    refused_ = true;
    why_ = errno_text(errno);
  }
}

std::uint32_t PendingLink::events() const { return EPOLLIN | (connecting_ || !out_.empty() ? EPOLLOUT : 0u); }

PendingLink::State PendingLink::fail(const std::string& why) {
  fd_.reset();
  why_ = calls_peer_ ? addresses_[at_].text + ": " + why : why;
  return State::failed;
}

/// The address belongs to another process: records that the peer is not reached there.
PendingLink::State PendingLink::fail_elsewhere(const std::string& why) {
  if (calls_peer_) reached_[at_] = false;
  return fail(why);
}

std::string PendingLink::what_is_slow() const {
  return addresses_[at_].text + (connecting_ ? ": no answer" : ": it accepts calls and says nothing");
}

bool PendingLink::reached() const { return std::find(reached_.begin(), reached_.end(), true) != reached_.end(); }

PendingLink::State PendingLink::step() {
  if (refused_) return fail(why_);
  if (connecting_) {
    if (const int error = calls_.connect_error(fd_.get())) return fail(errno_text(error));
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return State::under_way;
    connecting_ = false;
    reached_[at_] = true;
    slow_ns_ = memory::now_ns() + rounds_ * handshake_ns_;
    handshake_ = new_handshake();
  }
  if (answered_ == Welcome::none) {
    const int ended = receive();
    if (ended == EPROTO) return fail_elsewhere("it does not know the job's key");
    if (ended != 0 && !(calls_peer_ && handshake_->welcome() != Welcome::none))
      return fail(ended < 0 ? "it closed the connection" : errno_text(ended));
  }
  if (!handshake_) return State::under_way;
  out_ += handshake_->give();
  begun_ |= !calls_peer_ && !out_.empty();
  if (!send()) return fail("it closed the connection");
  if (calls_peer_) switch (handshake_->welcome()) {
      case Welcome::none:
        return State::under_way;
      case Welcome::yes:
        return State::welcome;
      case Welcome::duplicate:
        return State::duplicate;
      case Welcome::stranger:
        return fail_elsewhere("another process listens there");
      case Welcome::otherwise:
        return fail("one end encrypts tensors, the other does not (HVD_ENCRYPT_TENSORS)");
    }
  if (answered_ != Welcome::none) {
    if (!out_.empty()) return State::under_way;
    return answered_ == Welcome::yes ? State::welcome : fail("it was not let in");
  }
  return handshake_->introduced() ? State::introduced : State::under_way;
}

bool PendingLink::send() {
  while (!out_.empty()) {
    const iovec part{out_.data(), out_.size()};
    const ssize_t sent = calls_.send(fd_.get(), &part, 1);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    out_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

int PendingLink::receive() {
  char data[4096];
  for (;;) {
    // Stops when the other end may send frames, because the handshake must not take frames as TLS records.
    if (handshake_ && (calls_peer_ ? handshake_->welcome() != Welcome::none : handshake_->introduced())) return 0;
    const iovec part{data, sizeof data};
    const ssize_t got = calls_.receive(fd_.get(), &part, 1);
    if (got == 0) return -1;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
    if (!handshake_) handshake_ = new_handshake();
    if (!handshake_->take(data, static_cast<std::size_t>(got))) return EPROTO;
  }
}

}  // namespace hvd::transport::tcp
