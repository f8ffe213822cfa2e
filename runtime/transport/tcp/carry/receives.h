/// @file receives.h — the receiving end of all channels: where the bytes of frames go, and what is kept.
///
/// Each byte of a receive's memory is written by one frame.  A frame that would overlap another one, or comes twice, is
/// refused.  Where several network interfaces carry parts, a part may come twice, and its second copy is dropped.
/// Memory is given back only when no lane is in the midst of a frame for it.  Bytes without a receive are bounded
/// (message_channel.h).
///
/// Thread: one at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/carry/message_channel.h"
#include "transport/tcp/carry/stream_table.h"
#include "transport/tcp/connect/dialer.h"

namespace hvd::transport::tcp {

/// What the receiving end asks for.  None of these calls it back.
class ReceivesUser {
 public:
  virtual ~ReceivesUser() = default;
  /// The peer is told so.
  virtual void answer(FrameKind kind, const Channel& channel, std::uint32_t number, std::uint64_t at) = 0;
  /// The receive is done.
  virtual void received(Ticket ticket) = 0;
  /// True: several network interfaces reach the peer.  When a lane ends, its parts come again over other lanes.
  virtual bool parts_repeat(int peer) = 0;
  /// A frame of that peer that is arriving and that @p drops: the rest of its bytes goes nowhere.
  virtual void drop_arriving(int peer, const std::function<bool(const FrameHeader&)>& drops) = 0;
};

class Receives {
 public:
  /// @p user and @p streams must outlive this.  @p bulk_lanes: as in LinkPlan.
  Receives(ReceivesUser& user, StreamTable& streams, int bulk_lanes)
      : user_(user), streams_(streams), bulk_lanes_(bulk_lanes) {}

  /// @return its number in the channel; nullopt: the message was here, and has been copied.  Throws Error{internal}
  /// where it is of another length.
  std::optional<std::uint32_t> post(const Channel& from, void* data, std::size_t bytes, Ticket ticket);
  /// The memory of that receive is not written any more.
  void abandon(const Channel& from, std::uint32_t number);
  /// The oldest message of a control stream.
  std::optional<Message> poll(int stream, Tag tag);
  /// All of that stream goes.  Its frames that are arriving are dropped.
  void forget(int stream);

  /// @name Frames of kinds message and piece, as FrameHandler has them
  /// @{
  unsigned char* place(LaneName lane, const FrameHeader& header);
  void arrived(LaneName lane, const FrameHeader& header);
  /// Nothing more comes on that one.
  void lane_ended(LaneName lane) { arriving_.erase(lane); }
  /// @}

  /// Bytes that are kept for receives and polls to come, as counted_bytes() counts: for tests.
  std::uint64_t kept_bytes() const;
  /// Channels that have state: for tests.
  std::size_t channels() const { return channels_.size(); }

 private:
  struct Posted {
    unsigned char* data = nullptr;  ///< nullptr: abandoned, the bytes are dropped
    std::size_t bytes = 0, left = 0;
    Ticket ticket = 0;        ///< 0: abandoned
    bool asked = false;       ///< a large one: the peer knows that there is room
    bool counted = false;     ///< among the channel's rooms
    std::vector<bool> parts;  ///< a large one: have begun; where parts repeat: have come
  };
  struct IncomingChannel {
    std::uint32_t next = 0;
    std::map<std::uint32_t, Posted> posted;
    std::map<std::uint32_t, std::string> early;
    std::size_t rooms = 0;            ///< receives that the peer knows of, whose messages have not come
    std::deque<std::uint32_t> later;  ///< receives that it is to know of when there are fewer
    std::uint64_t untaken = 0;        ///< counted bytes of messages that have come; without those told as taken
    std::uint64_t taken = 0;          ///< of these: taken, and not told
  };
  struct Body {
    int stream = 0;
    std::string text;
  };

  IncomingChannel* find(const Channel& channel);
  unsigned char* place_body(LaneName lane, const FrameHeader& header, std::size_t most);
  unsigned char* place_message(LaneName lane, IncomingChannel& in, const FrameHeader& header);
  unsigned char* place_part(const Channel& channel, IncomingChannel& in, const FrameHeader& header);
  void arrived_whole(const Channel& channel, IncomingChannel& in, std::uint32_t number, std::string text);
  void part_arrived(const Channel& channel, IncomingChannel& in, const FrameHeader& header);
  void count(IncomingChannel& in, std::size_t bytes);
  void taken(const Channel& channel, IncomingChannel& in, std::size_t bytes);
  void ask(const Channel& channel, IncomingChannel& in);
  void complete(const Channel& channel, IncomingChannel& in, std::map<std::uint32_t, Posted>::iterator posted);

  ReceivesUser& user_;
  StreamTable& streams_;
  const int bulk_lanes_;
  std::map<Channel, IncomingChannel> channels_;
  std::map<std::pair<int, Tag>, std::deque<Message>> inbox_;  ///< by stream and tag
  std::map<LaneName, Body> arriving_;                         ///< a message that has no receive
};

}  // namespace hvd::transport::tcp
