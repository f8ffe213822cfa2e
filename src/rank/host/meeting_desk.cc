#include "rank/host/meeting_desk.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "wire/messages/meeting_message.h"

namespace hvd::rank {

using wire::MeetingFrame;
using wire::MeetingMessage;

namespace {

/// A whole message always fits: what has come up to here can be taken, so that the socket is read again.
constexpr std::size_t most_in_bytes = sizeof(MeetingFrame) + wire::most_join_bytes;

}  // namespace

Fd MeetingDesk::add(int rank) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  ::fcntl(pair[0], F_SETFL, O_NONBLOCK);
  seats_.push_back({.rank = rank, .socket = Fd(pair[0])});
  return Fd(pair[1]);
}

void MeetingDesk::add_to(std::vector<pollfd>& fds) const {
  for (const Seat& s : seats_)
    if (s.socket) fds.push_back({s.socket.get(), static_cast<short>(POLLIN | (s.out.empty() ? 0 : POLLOUT)), 0});
}

std::vector<std::string> MeetingDesk::turn() {
  std::vector<std::string> messages;
  for (Seat& s : seats_) {
    if (s.socket) read(s);
    take(s, messages);
    if (s.socket) write(s);
  }
  return messages;
}

void MeetingDesk::read(Seat& seat) {
  char piece[16 << 10];
  while (seat.in.size() < most_in_bytes) {
    const ssize_t n = ::recv(seat.socket.get(), piece, sizeof piece, 0);
    if (n > 0) {
      seat.in.append(piece, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) seat.socket.reset();
    return;
  }
}

/// What a rank may say: its own process could send anything, so the rest is dropped with the socket.
void MeetingDesk::take(Seat& seat, std::vector<std::string>& messages) {
  MeetingFrame frame;
  const auto dismiss = [&seat] {
    seat.socket.reset();
    seat.in.clear();
  };
  while (seat.in.size() >= sizeof frame) {
    std::memcpy(&frame, seat.in.data(), sizeof frame);
    if (frame.bytes > wire::most_join_bytes) return dismiss();
    if (seat.in.size() < sizeof frame + frame.bytes) return;
    try {
      MeetingMessage m = wire::decode_meeting_message(std::string_view(seat.in).substr(sizeof frame, frame.bytes));
      m.rank = seat.rank;
      m.members.clear();
      using Kind = MeetingMessage::Kind;
      if (m.kind == Kind::join || m.kind == Kind::withdraw || m.kind == Kind::expect) messages.push_back(encode(m));
    } catch (const Error&) { return dismiss(); }
    seat.in.erase(0, sizeof frame + frame.bytes);
  }
}

void MeetingDesk::hand_out(const std::string& body) {
  const MeetingMessage m = wire::decode_meeting_message(body);
  const auto shared = std::make_shared<const std::string>(body);
  for (const MeetingMessage::Member& member : m.members)
    for (Seat& s : seats_) {
      if (s.rank != member.rank || !s.socket) continue;
      const MeetingFrame frame{static_cast<std::uint32_t>(body.size()), s.rank};
      s.out.push_back({std::make_shared<const std::string>(reinterpret_cast<const char*>(&frame), sizeof frame)});
      s.out.push_back({shared});
      write(s);
    }
}

void MeetingDesk::write(Seat& seat) {
  while (!seat.out.empty()) {
    OutPiece& piece = seat.out.front();
    const ssize_t n =
        ::send(seat.socket.get(), piece.bytes->data() + piece.sent, piece.bytes->size() - piece.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      seat.out.clear();
      return seat.socket.reset();
    }
    piece.sent += static_cast<std::size_t>(n);
    if (piece.sent == piece.bytes->size()) seat.out.pop_front();
  }
}

}  // namespace hvd::rank
