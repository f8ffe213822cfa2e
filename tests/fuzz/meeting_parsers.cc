/// Parsers of the messages that a rank's process sends to its host: in a meeting, and to a debugger.
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include "launcher/start/meeting_hub.h"
#include "parsers.h"
#include "rank/guard/debug_console.h"
#include "rank/host/meeting_relay.h"
#include "wire/messages/meeting_message.h"

namespace hvd::fuzz {
namespace {

using wire::MeetingMessage;

bool unread(const Fd& socket) {
  int bytes = 0;
  return ::ioctl(socket.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/// Three ranks of a host send messages to their daemon, and hvdrun reads the daemon's frames. The seed is a sequence of
/// (u8 rank, 255: the rank dies; u16 length; bytes).
void meetings(const std::string& s) {
  constexpr int ranks = 3;
  rank::MeetingRelay relay;
  launcher::MeetingHub hub({0, 0, 0});
  std::vector<Fd> sockets;
  for (int r = 0; r < ranks; ++r) sockets.push_back(relay.add(r));
  const auto hand_out = [&](const launcher::MeetingHub::Answers& answers) {
    for (const launcher::MeetingAnswer& a : answers) {
      hold(a.hosts == std::vector<int>{0});
      relay.hand_out(encode(a.message));
    }
  };
  const auto turn = [&] {
    for (const std::string& body : relay.turn()) {
      const MeetingMessage m = wire::decode_meeting_message(body);
      hold(m.rank >= 0 && m.rank < ranks && m.members.empty());
      hand_out(hub.receive(0, m));
    }
  };
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(s[at]); };
  for (std::size_t at = 0; at + 3 <= s.size();) {
    const std::size_t size = std::min<std::size_t>(byte(at + 1) | byte(at + 2) << 8, s.size() - at - 3);
    const int rank = byte(at) % ranks;
    if (byte(at) == 255) {
      hand_out(hub.revoke(static_cast<int>(size % ranks), "it has died"));
      hand_out(hub.end(static_cast<int>(size % ranks), "it has died"));
    }
    (void)!::send(sockets[static_cast<std::size_t>(rank)].get(), s.data() + at + 3, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    turn();
    for (int i = 0; i < 100 && unread(sockets[static_cast<std::size_t>(rank)]); ++i) turn();
    hold(!unread(sockets[static_cast<std::size_t>(rank)]));  // else the daemon would spin
    char answer[4096];
    while (::recv(sockets[static_cast<std::size_t>(rank)].get(), answer, sizeof answer, MSG_DONTWAIT) > 0) {}
    at += 3 + size;
  }
  for (Fd& socket : sockets) socket.reset();
  turn();
  std::vector<pollfd> fds;
  relay.add_to(fds);
  hold(fds.empty());
}

std::vector<std::string> meeting_life_samples() {
  const auto say = [](int rank, const std::string& bytes) {
    return std::string{static_cast<char>(rank), static_cast<char>(bytes.size() & 255),
                       static_cast<char>(bytes.size() >> 8)} +
           bytes;
  };
  const auto framed = [](const MeetingMessage& m) { return hvd::framed(0, encode(m)); };
  std::string all;
  for (int r = 0; r < 3; ++r) all += say(r, framed({.token = 5, .text = "abc"}));
  std::string some = say(1, framed({.token = 1, .ranks = {1, 2}, .text = "x"}));
  some += say(1, framed({.kind = MeetingMessage::Kind::withdraw, .token = 1}));
  some += say(2, framed({.token = 2, .ranks = {1, 2}}).substr(0, 9));
  return {all, all + std::string("\xff\1\0\0", 4) + all, some};
}

/// A rank to which a debugger is attached: hvdrun and the rank speak in turn. u8 type, u8 length, bytes.
void attach(const std::string& s) {
  std::signal(60, SIG_IGN);
  struct sigaction own {};
  own.sa_handler = [](int) {};
  ::sigaction(60, &own, nullptr);  // the rank is this process
  rank::DebugConsole console;
  rank::Outbox outbox;
  Fd link;
  auto now = rank::DebugConsole::Clock::now();
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(s[at]); };
  for (std::size_t at = 0; at + 2 <= s.size();) {
    const std::size_t size = std::min<std::size_t>(byte(at + 1), s.size() - at - 2);
    const std::string bytes = s.substr(at + 2, size);
    switch (byte(at) % 6) {
      case 0:
        console.take(bytes, byte(at) < 250 ? ::getpid() : 0, outbox);
        break;
      case 1: {
        link = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        const std::string name = "hvdrun-attach-" + std::to_string(::getpid());
        std::copy(name.begin(), name.end(), to.sun_path + 1);
        const std::size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
        (void)::connect(link.get(), reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(length));
        break;
      }
      case 2:
        if (link) (void)!::send(link.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
      case 3:
        link.reset();
        break;
      case 4:
        now += std::chrono::milliseconds(size * 100);
        break;
      case 5:
        console.close(outbox);
        break;
    }
    std::vector<pollfd> fds;
    console.add_fds(fds, outbox);
    for (const pollfd& fd : fds) hold(fd.fd >= 0);
    if (console.is_open()) console.step(outbox, now);
    at += 2 + size;
  }
  console.close(outbox);
  hold(!console.is_open());
}

std::vector<std::string> attach_samples() {
  using namespace std::string_literals;
  return {"\0\1o\1\0\2\1+\0\5tabcd\2\3xyz\0\1e\4\x60\0\1l"s + std::string(50, 'x'),
          "\0\1o\1\0\2\1-\4\1\1\0\2\1+\0\1l\0\1o\x05\0\0\1o\1\0\2\1?"s + std::string(50, '\0'), "\xfa\1o"s};
}

}  // namespace

std::vector<Parser> meeting_parsers() {
  return {{"meetings", meetings, meeting_life_samples}, {"attach", attach, attach_samples}};
}

}  // namespace hvd::fuzz
