/// @file receives.h — the receiving end of all channels: chooses the memory for frames, and keeps early messages.
///
/// One frame writes each byte of a receive's memory.  A frame that overlaps another frame, or arrives twice, is
/// refused.  If several network interfaces carry parts, a part may arrive twice, and the second copy is dropped.  A
/// receive is complete only when no lane writes to its memory any more.  Memory for messages without a receive is
/// bounded (message_channel.h).
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

/// The services that Receives needs.  A call may reach back into Receives::lane_ended(), if a lane ends meanwhile.  No
/// call may reach another function of Receives.
class ReceivesUser {
 public:
  virtual ~ReceivesUser() = default;
  /// Sends the peer a frame without payload.
  virtual void answer(FrameKind kind, const Channel& channel, std::uint32_t number, std::uint64_t at) = 0;
  /// The receive is complete.
  virtual void received(Ticket ticket) = 0;
  /// True if several network interfaces reach the peer.  When a lane ends, its parts then arrive again over other
  /// lanes.
  virtual bool parts_repeat(int peer) = 0;
  /// For each frame from @p peer that is arriving: if @p drops returns true, drops the remaining bytes of the frame.
  virtual void drop_arriving(int peer, const std::function<bool(const FrameHeader&)>& drops) = 0;
};

class Receives {
 public:
  /// @p user and @p streams must outlive this.  @p bulk_lanes: see LinkPlan.
  Receives(ReceivesUser& user, StreamTable& streams, int bulk_lanes)
      : user_(user), streams_(streams), bulk_lanes_(bulk_lanes) {}

  /// Posts a receive of @p bytes bytes.  @return the number of the message in the channel; nullopt: the message had
  /// arrived, and is now in @p data.  Throws Error{internal} if the message has another length.
  std::optional<std::uint32_t> post(const Channel& from, void* data, std::size_t bytes, Ticket ticket);
  /// Stops all writes to the memory of the receive.
  void abandon(const Channel& from, std::uint32_t number);
  /// Returns the oldest control message of this stream and tag; nullopt: none has arrived.
  std::optional<Message> poll(int stream, Tag tag);
  /// Removes all channels and messages of the stream.  Drops its frames that are arriving.
  void forget(int stream);

  /// @name Frames of kinds message and piece; see FrameHandler
  /// @{
  unsigned char* place(LaneName lane, const FrameHeader& header);
  void arrived(LaneName lane, const FrameHeader& header);
  /// No more bytes arrive on the lane.
  void lane_ended(LaneName lane) { arriving_.erase(lane); }
  /// @}

  /// For tests.  Counted bytes (counted_bytes()) of messages that no receive or poll has taken yet.
  std::uint64_t kept_bytes() const;
  /// For tests.  The number of channels with state.
  std::size_t channels() const { return channels_.size(); }

 private:
  struct Posted {
    unsigned char* data = nullptr;  ///< nullptr: abandoned; the bytes are dropped
    std::size_t bytes = 0, left = 0;
    Ticket ticket = 0;        ///< 0: abandoned
    bool asked = false;       ///< large message: FrameKind::room has been sent
    bool counted = false;     ///< included in IncomingChannel::rooms
    std::vector<bool> parts;  ///< [parts] large message: the part has begun; if parts repeat: has arrived
  };
  struct IncomingChannel {
    std::uint32_t next = 0;
    std::map<std::uint32_t, Posted> posted;
    std::map<std::uint32_t, std::string> early;
    std::size_t rooms = 0;            ///< receives with FrameKind::room sent and the message not yet arrived
    std::deque<std::uint32_t> later;  ///< receives for which FrameKind::room is sent when `rooms` is smaller
    std::uint64_t untaken = 0;        ///< counted bytes of messages that have begun to arrive, less the bytes credited
    std::uint64_t taken = 0;          ///< counted bytes among `untaken` that are taken but not credited
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
  std::map<LaneName, Body> arriving_;                         ///< messages without a receive
};

}  // namespace hvd::transport::tcp
