/// The messages of ranks to their host daemon before they know one another.
#include "rank/host/meeting_relay.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "wire/messages/meeting_message.h"

using namespace hvd;
using namespace hvd::rank;

namespace {

/// A join whose encoded form has @p bytes.
std::string join_of(std::size_t bytes) {
  wire::MeetingMessage m;
  m.text.assign(bytes - encode(m).size(), 'x');
  return encode(m);
}

/// Sends @p first bytes of the frame, then the rest, as fast as the reader takes them. @return the messages that
/// arrived.
std::vector<std::string> say(const std::string& body, std::size_t first) {
  MeetingRelay relay;
  const Fd rank = relay.add(3);
  const std::string all = framed(0, body);
  std::vector<std::string> came;
  std::size_t sent = 0;
  for (int turn = 0; turn < 10'000 && came.empty(); ++turn) {
    const std::size_t end = sent < first ? first : all.size();
    const ssize_t n = ::send(rank.get(), all.data() + sent, end - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    came = relay.turn();
  }
  return came;
}

}  // namespace

TEST_CASE("a join as long as a rank may send is read to its end, however its bytes come") {
  for (const std::size_t bytes : {wire::most_join_bytes, wire::most_join_bytes - 4, wire::most_join_bytes - 6})
    for (const std::size_t left : {bytes, bytes - 1000, std::size_t{7}, std::size_t{1}}) {
      INFO(bytes << " bytes, the last " << left << " later");
      const std::vector<std::string> came = say(join_of(bytes), SocketFrameHeader::bytes + bytes - left);
      REQUIRE(came.size() == 1);
      CHECK(wire::decode_meeting_message(came[0]).rank == 3);
    }
}

TEST_CASE("a longer join ends the conversation") { CHECK(say(join_of(wire::most_join_bytes + 1), 8).empty()); }
