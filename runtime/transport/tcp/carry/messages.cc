#include "transport/tcp/carry/messages.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace hvd::transport::tcp {
namespace {

/// Maximum size of a data message.  A frame header has 32 bits for the length, and one frame may carry the message.
constexpr std::size_t most_message_bytes = std::numeric_limits<std::int32_t>::max();

FrameHeader header_of(FrameKind kind, const Channel& channel, std::uint32_t number) {
  FrameHeader h;
  h.kind = kind;
  h.tag = static_cast<std::uint8_t>(channel.tag);
  h.stream = static_cast<std::uint32_t>(channel.stream);
  h.number = number;
  return h;
}

}  // namespace

Messages::Messages(LinkPlan plan, SocketCalls& calls)
    : links_(std::move(plan), calls, *this), receives_(*this, streams_, links_.bulk_lanes()) {}

Messages::~Messages() { links_.leave(); }

// ---- messages

Ticket Messages::keep(Request r) {
  r.used = true;
  if (free_.empty()) {
    requests_.push_back(std::move(r));
    return requests_.size();
  }
  const Ticket t = free_.back();
  free_.pop_back();
  request(t) = std::move(r);
  return t;
}

void Messages::release(Ticket ticket) {
  request(ticket).used = false;
  request(ticket).owner.reset();
  free_.push_back(ticket);
}

Ticket Messages::send(const Channel& to, const void* data, std::size_t bytes,
                      std::shared_ptr<const std::string> owner) {
  const bool control = is_control(to.tag);
  if (links_.gone(to.peer) && control) return 0;
  if (bytes > (control ? most_control_bytes : most_message_bytes))
    throw Error(Code::internal, "TCP", "a message of " + std::to_string(bytes) + " bytes is too large");
  Outgoing& out = outgoing_[to];
  Request r;
  r.sends = true;
  r.channel = to;
  r.number = out.next++;
  r.left = 1;
  r.data = static_cast<const char*>(data);
  r.bytes = bytes;
  r.owner = std::move(owner);
  const Ticket t = keep(r);
  if (links_.gone(to.peer)) return t;
  if (bytes > eager_bytes && !control) {
    if (out.room.erase(r.number) > 0)
      send_large(t, out);
    else
      out.waiting.emplace(r.number, t);
  } else if (out.untaken > most_untaken_bytes || !out.held.empty()) {
    out.held.push_back(t);
  } else {
    send_small(t, out);
  }
  return t;
}

void Messages::send_small(Ticket ticket, Outgoing& out) {
  Request& r = request(ticket);
  out.untaken += counted_bytes(r.bytes);
  OutFrame frame;
  frame.header = header_of(FrameKind::message, r.channel, r.number);
  frame.header.bytes = static_cast<std::uint32_t>(r.bytes);
  frame.data = r.data;
  frame.ticket = ticket;
  frame.owned = std::move(r.owner);
  links_.add(r.channel.peer, 0, std::move(frame));
}

void Messages::send_large(Ticket ticket, Outgoing& out) {
  const Request r = request(ticket);
  const FrameHeader header = header_of(FrameKind::piece, r.channel, r.number);
  if (links_.has_spares(r.channel.peer)) {
    out.going[r.number] = ticket;
    parts_.begin(r.channel.peer, header, r.bytes, ticket, r.data);
    return fill(r.channel.peer);
  }
  const auto lanes = static_cast<std::size_t>(links_.bulk_lanes());
  const std::size_t piece = lanes == 1 ? r.bytes : PartSender::part_bytes;
  request(ticket).left = (r.bytes + piece - 1) / piece;
  for (std::size_t at = 0, k = r.number; at < r.bytes; at += piece, ++k) {
    OutFrame frame;
    frame.header = header;
    frame.header.at = at;
    frame.header.bytes = static_cast<std::uint32_t>(std::min(piece, r.bytes - at));
    frame.data = r.data + at;
    frame.ticket = ticket;
    links_.add(r.channel.peer, 1 + static_cast<int>(k % lanes), std::move(frame));
  }
}

Ticket Messages::receive(const Channel& from, void* data, std::size_t bytes) {
  Request r;
  r.channel = from;
  r.left = 1;
  r.bytes = bytes;
  const Ticket t = keep(r);
  try {
    const auto number = receives_.post(from, data, bytes, t);
    if (number) {
      request(t).number = *number;
      return t;
    }
  } catch (const Error& e) {
    release(t);
    throw Error(e.code, "", links_.name(from.peer) + ": " + e.what());
  }
  release(t);
  return 0;
}

void Messages::answer(FrameKind kind, const Channel& channel, std::uint32_t number, std::uint64_t at) {
  if (links_.gone(channel.peer)) return;
  OutFrame frame;
  frame.header = header_of(kind, channel, number);
  frame.header.at = at;
  links_.add(channel.peer, 0, std::move(frame));
}

bool Messages::test(Ticket ticket) {
  if (ticket == 0) return true;
  if (request(ticket).left > 0) {
    progress();
    if (request(ticket).left > 0) {
      const int peer = request(ticket).channel.peer;
      if (links_.gone(peer)) throw Error(Code::peer_lost, "", links_.why_gone(peer));
      return false;
    }
  }
  release(ticket);
  return true;
}

void Messages::abandon(Ticket ticket) {
  if (ticket == 0 || !request(ticket).used) return;
  const Request r = request(ticket);
  release(ticket);
  if (r.sends)
    abandon_send(ticket, r);
  else
    receives_.abandon(r.channel, r.number);
}

void Messages::abandon_send(Ticket ticket, const Request& r) {
  parts_.end(ticket);
  const std::size_t dropped = links_.forget(r.channel.peer, ticket);
  const auto found = outgoing_.find(r.channel);
  if (found == outgoing_.end()) return;
  Outgoing& out = found->second;
  out.waiting.erase(r.number);
  out.going.erase(r.number);
  std::erase(out.held, ticket);
  if (dropped > 0 && (is_control(r.channel.tag) || r.bytes <= eager_bytes)) out.untaken -= counted_bytes(r.bytes);
}

std::optional<Message> Messages::poll(int stream, Tag tag) {
  auto m = receives_.poll(stream, tag);
  if (!m && !polled_) {
    progress();
    m = receives_.poll(stream, tag);
  }
  polled_ = m.has_value();
  return m;
}

// ---- streams

void Messages::open(int stream, const std::vector<int>& members) {
  for (const int never : streams_.open(stream, members)) forget_channels(never);
}

void Messages::forget(int stream) {
  streams_.close(stream);
  forget_channels(stream);
}

void Messages::forget_channels(int stream) {
  receives_.forget(stream);
  std::erase_if(outgoing_, [&](const auto& out) { return out.first.stream == stream; });
}

/// Returns the channel of a frame that has arrived.  nullptr: the stream is closed.  Throws Error{internal} if the peer
/// must not use the stream.
Messages::Outgoing* Messages::outgoing(const Channel& channel) {
  const auto known = outgoing_.find(channel);
  if (known != outgoing_.end()) return &known->second;
  return streams_.admits(channel.peer, channel.stream) ? &outgoing_[channel] : nullptr;
}

// ---- parts of messages over several network interfaces

void Messages::progress() {
  links_.progress();
  if (parts_.none()) return;
  for (const int peer : parts_.peers()) fill(peer);
}

void Messages::fill(int peer) {
  links_.fill(peer, [&](int lane) { return parts_.next(peer, lane); });
}

void Messages::lane_ended(const Lane& lane) {
  receives_.lane_ended({lane.peer(), lane.number()});
  parts_.lane_ended(lane.peer(), lane.number());
}

/// FrameKind::done: the receiver has all parts of a large message.
void Messages::done(const Channel& channel, std::uint32_t number) {
  if (!links_.has_spares(channel.peer)) throw broken_frame();
  Outgoing* const out = outgoing(channel);
  if (!out) return;
  const auto it = out->going.find(number);
  if (it == out->going.end()) {
    if (static_cast<std::int32_t>(number - out->next) >= 0) throw broken_frame();
    return;  // the send was abandoned
  }
  const Ticket ticket = it->second;
  out->going.erase(it);
  parts_.end(ticket);
  links_.forget(channel.peer, ticket);  // drops second copies of parts that have arrived
  request(ticket).left = 0;
}

// ---- frames

unsigned char* Messages::place(Lane& lane, const FrameHeader& h) {
  switch (h.kind) {
    case FrameKind::message:
    case FrameKind::piece:
      return receives_.place({lane.peer(), lane.number()}, h);
    case FrameKind::room:
    case FrameKind::done:
    case FrameKind::credit:
      if (h.bytes != 0 || lane.number() != 0 || !is_channel(h)) throw broken_frame();
      return nullptr;
    case FrameKind::bye:
      if (h.bytes != 0) throw broken_frame();
      return nullptr;
  }
  throw broken_frame();
}

void Messages::arrived(Lane& lane, const FrameHeader& h) {
  const Channel channel{lane.peer(), static_cast<int>(h.stream), static_cast<Tag>(h.tag)};
  switch (h.kind) {
    case FrameKind::message:
    case FrameKind::piece:
      return receives_.arrived({lane.peer(), lane.number()}, h);
    case FrameKind::bye:
      return links_.said_bye(lane, h.number);
    case FrameKind::room:
      return room(channel, h.number);
    case FrameKind::done:
      return done(channel, h.number);
    case FrameKind::credit:
      return credit(channel, h.at);
  }
}

/// FrameKind::room: the receiver is ready for a large message.
void Messages::room(const Channel& channel, std::uint32_t number) {
  Outgoing* const out = is_control(channel.tag) ? throw broken_frame() : outgoing(channel);
  if (!out) return;
  const auto waits = out->waiting.find(number);
  if (waits != out->waiting.end()) {
    const Ticket ticket = waits->second;
    out->waiting.erase(waits);
    return send_large(ticket, *out);
  }
  if (static_cast<std::int32_t>(number - out->next) < 0) return;  // the send was abandoned
  if (out->room.size() >= most_known_rooms || !out->room.insert(number).second)
    throw Error(Code::internal, "TCP", "a rank is ready for more messages than any can have under way");
}

/// FrameKind::credit: the receiver has taken small messages.  Sends held messages up to the limit.
void Messages::credit(const Channel& channel, std::uint64_t bytes) {
  Outgoing* const out = outgoing(channel);
  if (!out) return;
  if (bytes > out->untaken) throw broken_frame();
  out->untaken -= bytes;
  while (!out->held.empty() && out->untaken <= most_untaken_bytes) {
    const Ticket ticket = out->held.front();
    out->held.pop_front();
    send_small(ticket, *out);
  }
}

void Messages::left(Lane& lane, const OutFrame& frame) {
  if (frame.header.kind == FrameKind::piece && links_.has_spares(lane.peer())) return;  // done() completes the send
  if (frame.ticket != 0 && request(frame.ticket).left > 0) --request(frame.ticket).left;
}

/// Completes the control messages to the peer, because no caller waits for their delivery.
void Messages::peer_lost(int peer) {
  parts_.peer_lost(peer);
  for (auto& [channel, out] : outgoing_)
    if (channel.peer == peer) out.held.clear();
  for (Request& r : requests_)
    if (r.used && r.sends && r.channel.peer == peer && is_control(r.channel.tag)) r.left = 0;
}

}  // namespace hvd::transport::tcp
