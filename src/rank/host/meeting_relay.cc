#include "rank/host/meeting_relay.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/error.h"

namespace hvd::rank {

using wire::MeetingMessage;

Fd MeetingRelay::add(int rank) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  ranks_.push_back({.rank = rank, .socket = Fd(pair[0])});
  return Fd(pair[1]);
}

void MeetingRelay::add_to(std::vector<pollfd>& fds) const {
  for (const RankSocket& r : ranks_)
    if (r.socket) fds.push_back({r.socket.get(), static_cast<short>(POLLIN | (r.out.is_empty() ? 0 : POLLOUT)), 0});
}

std::vector<std::string> MeetingRelay::turn() {
  std::vector<std::string> messages;
  for (RankSocket& r : ranks_) {
    if (!r.socket) continue;
    const bool ended = r.in.read(r.socket.get()) == FrameInput::Read::ended;
    take(r, messages);
    if (ended) r.socket.reset();
    flush(r);
  }
  return messages;
}

/// A rank may join, withdraw and ask for its place.  If the rank's process sends anything else, its socket is closed.
void MeetingRelay::take(RankSocket& from, std::vector<std::string>& messages) {
  while (const auto frame = from.in.take()) try {
      MeetingMessage m = wire::decode_meeting_message(frame->body);
      m.rank = from.rank;
      m.members.clear();
      using Kind = MeetingMessage::Kind;
      if (m.kind == Kind::join || m.kind == Kind::withdraw || m.kind == Kind::expect) messages.push_back(encode(m));
    } catch (const Error&) {
      from.in.drop();
      return from.socket.reset();
    }
  if (from.in.is_malformed()) from.socket.reset();
}

void MeetingRelay::hand_out(const std::string& body) {
  const MeetingMessage m = wire::decode_meeting_message(body);
  const auto shared = std::make_shared<const std::string>(body);
  for (const MeetingMessage::Member& member : m.members)
    for (RankSocket& r : ranks_) {
      if (r.rank != member.rank || !r.socket) continue;
      r.out.add(static_cast<std::uint32_t>(r.rank), shared);
      flush(r);
    }
}

void MeetingRelay::flush(RankSocket& to) {
  if (to.socket && to.out.flush(to.socket.get()) == FrameOutput::Flush::broken) to.socket.reset();
}

}  // namespace hvd::rank
