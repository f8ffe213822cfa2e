#include "rank/guard/rank_inputs.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/error.h"

namespace hvd::rank {

RankInputs::RankInputs(const LaunchContext& call)
    : environment_(current_environment()), environment_stream_(call.environment_fd), meeting_(call.meeting_fd) {}

void RankInputs::take_manifest(const std::string& body, int rank) {
  manifest_ = wire::manifest_from_json(body);
  if (manifest_.rank != rank) throw Error(Code::internal, "manifest", "is another rank's");
  const wire::Payload& payload = manifest_.payload;
  if (payload.kind != wire::PayloadKind::pickle) {
    payload_is_ready_ = true;
    return;
  }
  if (payload.deliver) {
    if (!store_) store_.emplace();
    return;
  }
  if (payload.path.empty()) return;  // the next manifest names this host's copy
  payload_ = Fd(::open(payload.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!payload_)
    throw Error(Code::unavailable, "", payload.name + ": this host's copy cannot be read: " + errno_text(errno));
  payload_is_ready_ = true;
}

std::optional<std::string> RankInputs::take_payload(const std::string& piece) {
  if (!store_ || payload_is_ready_) return std::nullopt;
  if (!piece.empty()) {
    store_->add(piece);
    return std::nullopt;
  }
  store_->seal();
  // Opened again, because each open file has its own position.  Other guards open the same path.
  payload_ = Fd(::open(store_->path().c_str(), O_RDONLY | O_CLOEXEC));
  payload_is_ready_ = true;
  return store_->path();
}

void RankInputs::read_environment() {
  if (!environment_stream_) return;
  std::array<char, 4096> piece;
  ssize_t n;
  while ((n = ::recv(environment_stream_.get(), piece.data(), piece.size(), MSG_DONTWAIT)) > 0)
    environment_text_.append(piece.data(), static_cast<std::size_t>(n));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  environment_stream_.reset();
  for (std::size_t at = 0, end; (end = environment_text_.find('\0', at)) != std::string::npos; at = end + 1) {
    const std::string line = environment_text_.substr(at, end - at);
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      environment_[line.substr(0, equals)] = line.substr(equals + 1);
  }
}

}  // namespace hvd::rank
