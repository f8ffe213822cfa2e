/// @file meeting_message.h — meetings: how ranks find their world without MPI.
///
/// A rank that calls hvd.init() sends `join` to its host daemon and waits.  The daemon adds the number of the rank and
/// passes the message on to hvdrun.  hvdrun gathers all participants (launcher/start/meeting_hub.h) and sends each host
/// one answer for all of its ranks: `world` or `refused`.  A rank may meet again and again.
///
/// In an elastic job the death of a rank revokes its world.  Every other rank of that world gets `revoked`.  All
/// operations of such a rank then end with peer_lost.  So does a hvd.init() that is still forming that world.  The
/// script calls hvd.shutdown() and hvd.init() in the same process.  The next world has the members that hvdrun has
/// invited, new connections and new shared memory.  A rank may join before hvdrun knows of the death.  Such a rank is
/// refused with peer_lost, and joins again.
///
/// A rank that an elastic job starts while others train sends `expect` first.  The answer is `expected`.  The rank
/// joins when it is ready to receive the training's state.
///
///   rank ⇄ host daemon   the stream socket whose descriptor is in HVD_MEETING_FD, framed by
///                        base/network/framed_socket.h.  The tag of a frame from the daemon is the reader's rank.
///   daemon ⇄ hvdrun      the same body, as Type::meeting of the channel.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

struct MeetingMessage {
  enum class Kind : std::uint8_t {
    join = 1,  ///< rank → hvdrun: `rank` waits for `ranks` (empty: all); each of them gets `text`
    withdraw,  ///< rank → hvdrun: the rank gives up.  The answer is `refused`, with the names of the missing ranks
    world,     ///< hvdrun → ranks: world number `epoch` is `members`, in the order of their ranks there
    refused,   ///< hvdrun → ranks: `members` form no world; `code` and `text` say why
    revoked,   ///< hvdrun → ranks: the world `epoch`, of `members`, is over; `code` and `text` say why
    expect,    ///< rank → hvdrun: `rank` asks for its place in the next world, without waiting for others
    expected,  ///< hvdrun → rank in `members`: `rank` is its rank in the next world; `ranks` holds the host of each
               ///< rank
  };
  struct Member {
    std::int32_t rank = -1;   ///< in the launch: a process keeps its number
    std::int32_t host = -1;   ///< number of its host; all ranks of one daemon have the same
    std::uint64_t token = 0;  ///< of its `join`.  A rank that has withdrawn this `join` ignores the message
    std::string text{};       ///< in `world`: the text of its `join`
  };
  Kind kind = Kind::join;
  std::int32_t code = 0;  ///< hvd::Code
  std::int32_t rank = -1;
  std::uint64_t token = 0;  ///< of `join`, `withdraw` and `expect`: chosen by the rank
  std::uint64_t epoch = 0;
  std::vector<std::int32_t> ranks{};
  std::vector<Member> members{};
  std::string text{};
};

inline constexpr const char* meeting_fd_variable = "HVD_MEETING_FD";

/// The text of `refused` for a rank that an elastic job needs no more.  hvd/elastic.py then ends the rank with success.
inline constexpr const char* not_needed = "this rank is needed no more";

inline constexpr std::size_t most_join_bytes = 256u << 10;  ///< of one message from a rank
inline constexpr std::size_t most_answer_bytes = 4u << 20;  ///< of one message to a rank: a frame of the channel

std::string encode(const MeetingMessage& message);
/// Throws Error{usage} when @p bytes are not one whole message.
MeetingMessage decode_meeting_message(std::string_view bytes);

}  // namespace hvd::wire
