/// @file meeting_message.h — how ranks find their world without MPI: what they, their host daemons and hvdrun say.
///
/// A rank that calls hvd.init() sends `join` through the socket to its host daemon, and waits.  The daemon puts in
/// which rank it is and passes it to hvdrun, which gathers all participants (launcher/start/meeting_hub.h) and answers
/// each host once: `world` or `refused`, for all ranks of that host that wait.  A rank may meet again and again.
///
/// A rank that dies revokes its world, where the job goes on without it (it is elastic).  Each other rank of that world
/// gets `revoked`; all its operations, and a hvd.init() that still forms that world, end at once with peer_lost,
/// however they wait, and so does what it submits later.  Then the script calls hvd.shutdown() and hvd.init(), in the
/// same process: the next world has those members whom hvdrun has invited, other connections, and other shared memory.
/// Who joins before hvdrun knows of the death is refused with peer_lost, and joins again.
///
/// A rank that an elastic job starts while others train sends `expect` first.  The answer is `expected`.  The rank
/// joins when it is ready to receive the training's state.
///
///   rank ⇄ host daemon   the stream socket whose descriptor is in HVD_MEETING_FD.  Each frame: MeetingFrame, body.
///   daemon ⇄ hvdrun      the body, as Type::meeting of the channel.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

struct MeetingMessage {
  enum class Kind : std::uint8_t {
    join = 1,  ///< rank → hvdrun: `rank` waits for `ranks` (empty: all), to whom it says `text`
    withdraw,  ///< rank → hvdrun: it waits no longer.  It is refused with the names of those who have not come
    world,     ///< hvdrun → ranks: `members` in the order of their ranks in the world, which is number `epoch`
    refused,   ///< hvdrun → ranks: the world of those in `members` will not be; `code` and `text` say why
    revoked,   ///< hvdrun → ranks: the world `epoch`, of those in `members`, is over; `code` and `text` say why
    expect,    ///< rank → hvdrun: `rank` asks for its place in the next world, and does not wait for others
    expected,  ///< hvdrun → rank in `members`: `ranks` are the hosts of the next world's ranks, `rank` its place there
  };
  struct Member {
    std::int32_t rank = -1;   ///< in the launch: it never changes
    std::int32_t host = -1;   ///< number of its host; ranks of one daemon have the same
    std::uint64_t token = 0;  ///< of its join: who has withdrawn that takes no notice
    std::string text{};       ///< in `world`: what it said
  };
  Kind kind = Kind::join;
  std::int32_t code = 0;  ///< hvd::Code
  std::int32_t rank = -1;
  std::uint64_t token = 0;  ///< of `join`, `withdraw` and `expect`: given by the rank
  std::uint64_t epoch = 0;
  std::vector<std::int32_t> ranks{};
  std::vector<Member> members{};
  std::string text{};
};

inline constexpr const char* meeting_fd_variable = "HVD_MEETING_FD";

/// Before each body on the socket.
struct MeetingFrame {
  std::uint32_t bytes = 0;  ///< of the body
  std::int32_t rank = -1;   ///< from the daemon: who the reader is.  From the rank: unused
};
static_assert(sizeof(MeetingFrame) == 8);

/// Of `refused`, for a rank that an elastic job needs no more: it is to end well.  hvd/elastic.py knows these words.
inline constexpr const char* not_needed = "this rank is needed no more";

inline constexpr std::size_t most_join_bytes = 256u << 10;  ///< of what one rank may send

std::string encode(const MeetingMessage& message);
/// Throws Error{usage} when @p bytes are not one whole message.
MeetingMessage decode_meeting_message(std::string_view bytes);

}  // namespace hvd::wire
