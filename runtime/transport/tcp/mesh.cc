#include "transport/tcp/mesh.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hvd::transport::tcp {
namespace {

constexpr std::size_t eager_bytes = 32 << 10;
constexpr std::size_t most_control_bytes = std::size_t{1} << 30;
constexpr std::size_t piece_bytes = 256 << 10;  ///< of a large message, where there are several lanes for it

Error broken() { return Error(Code::internal, "TCP", "a frame came that no rank of this version sends"); }

}  // namespace

Mesh::Mesh(ConnectionPlan plan, SocketCalls& calls) : connections_(std::move(plan), calls, *this) {}

Mesh::~Mesh() { connections_.leave(); }

// ---- messages

Ticket Mesh::keep(Request r) {
  r.used = true;
  if (free_.empty()) {
    requests_.push_back(r);
    return requests_.size();
  }
  const Ticket t = free_.back();
  free_.pop_back();
  request(t) = r;
  return t;
}

void Mesh::release(Ticket ticket) {
  request(ticket).used = false;
  free_.push_back(ticket);
}

Ticket Mesh::send(const Channel& to, const void* data, std::size_t bytes) {
  if (connections_.gone(to.peer) && is_control(to.tag)) return 0;
  Outgoing& out = outgoing_[to];
  Request r;
  r.sends = true;
  r.channel = to;
  r.number = out.next++;
  r.left = 1;
  r.data = static_cast<const char*>(data);
  r.bytes = bytes;
  const Ticket t = keep(r);
  if (connections_.gone(to.peer)) return t;
  if (bytes > eager_bytes && !is_control(to.tag)) {
    if (out.room.erase(r.number) > 0)
      send_large(t);
    else
      out.waiting.emplace(r.number, t);
    return t;
  }
  OutFrame frame;
  frame.header = {
      FrameKind::message, static_cast<std::uint8_t>(to.tag), static_cast<std::uint16_t>(to.stream), r.number, 0, bytes};
  frame.data = r.data;
  frame.ticket = t;
  connections_.add(to.peer, 0, std::move(frame));
  return t;
}

void Mesh::send_large(Ticket ticket) {
  const Request r = request(ticket);
  if (connections_.has_spares(r.channel.peer)) {
    outgoing_[r.channel].going[r.number] = ticket;
    parts_.begin(r.channel.peer,
                 {FrameKind::piece, static_cast<std::uint8_t>(r.channel.tag),
                  static_cast<std::uint16_t>(r.channel.stream), r.number, 0, r.bytes},
                 ticket, r.data);
    return fill(r.channel.peer);
  }
  const auto lanes = static_cast<std::size_t>(connections_.bulk_lanes());
  const std::size_t piece = lanes == 1 ? r.bytes : piece_bytes;
  request(ticket).left = (r.bytes + piece - 1) / piece;
  for (std::size_t at = 0, k = r.number; at < r.bytes; at += piece, ++k) {
    OutFrame frame;
    frame.header = {FrameKind::piece,
                    static_cast<std::uint8_t>(r.channel.tag),
                    static_cast<std::uint16_t>(r.channel.stream),
                    r.number,
                    at,
                    std::min(piece, r.bytes - at)};
    frame.data = r.data + at;
    frame.ticket = ticket;
    connections_.add(r.channel.peer, 1 + static_cast<int>(k % lanes), std::move(frame));
  }
}

Ticket Mesh::receive(const Channel& from, void* data, std::size_t bytes) {
  Incoming& in = incoming_[from];
  const std::uint32_t number = in.next++;
  if (auto early = in.early.find(number); early != in.early.end()) {
    if (early->second.size() != bytes) throw broken();
    std::memcpy(data, early->second.data(), bytes);
    in.early.erase(early);
    return 0;
  }
  Request r;
  r.channel = from;
  r.number = number;
  r.left = bytes;
  r.bytes = bytes;
  const Ticket t = keep(r);
  in.posted[number] = {static_cast<unsigned char*>(data), bytes, bytes, t, {}};
  if (bytes > eager_bytes && !connections_.gone(from.peer)) answer(FrameKind::room, from, number);
  return t;
}

void Mesh::answer(FrameKind kind, const Channel& channel, std::uint32_t number) {
  OutFrame frame;
  frame.header = {kind, static_cast<std::uint8_t>(channel.tag), static_cast<std::uint16_t>(channel.stream), number, 0,
                  0};
  connections_.add(channel.peer, 0, std::move(frame));
}

bool Mesh::test(Ticket ticket) {
  if (ticket == 0) return true;
  const auto done = [&] {
    const Request& r = request(ticket);
    return r.sends ? r.left == 0 : incoming_[r.channel].posted.count(r.number) == 0;
  };
  if (!done()) {
    progress();
    if (!done()) {
      const int peer = request(ticket).channel.peer;
      if (connections_.gone(peer)) throw Error(Code::peer_lost, "", connections_.why_gone(peer));
      return false;
    }
  }
  release(ticket);
  return true;
}

void Mesh::abandon(Ticket ticket) {
  if (ticket == 0 || !request(ticket).used) return;
  const Request r = request(ticket);
  release(ticket);
  if (r.sends) {
    outgoing_[r.channel].waiting.erase(r.number);
    outgoing_[r.channel].going.erase(r.number);
    parts_.end(ticket);
    connections_.forget(r.channel.peer, ticket);
    return;
  }
  auto& posted = incoming_[r.channel].posted;
  const auto it = posted.find(r.number);
  if (it == posted.end()) return;
  it->second.data = nullptr;
  it->second.ticket = 0;
  connections_.drop_arriving(r.channel.peer, [&](const FrameHeader& h) {
    return h.tag == static_cast<std::uint8_t>(r.channel.tag) && h.stream == r.channel.stream && h.number == r.number;
  });
}

std::optional<Message> Mesh::poll(int stream, Tag tag) {
  auto& box = inbox_[{stream, tag}];
  if (box.empty()) progress();
  if (box.empty()) return std::nullopt;
  Message m = std::move(box.front());
  box.pop_front();
  return m;
}

void Mesh::forget(int stream) {
  std::erase_if(inbox_, [&](const auto& box) { return box.first.first == stream; });
  for (auto& [channel, in] : incoming_)
    if (channel.stream == stream) in.early.clear();
}

// ---- parts, where several cards carry them

void Mesh::progress() {
  connections_.progress();
  if (parts_.none()) return;
  for (const int peer : parts_.peers()) fill(peer);
}

void Mesh::fill(int peer) {
  connections_.fill(peer, [&](int lane) { return parts_.next(peer, lane); });
}

void Mesh::lane_ended(const Lane& lane) {
  arriving_.erase(&lane);
  parts_.lane_ended(lane.peer(), lane.number());
}

/// A part may come twice: when a lane has ended its sender cannot know which ones have arrived.
unsigned char* Mesh::place_part(const Channel& channel, const FrameHeader& h) {
  Incoming& in = incoming_[channel];
  const auto it = in.posted.find(h.number);
  if (it == in.posted.end()) {
    if (static_cast<std::int32_t>(h.number - in.next) >= 0) throw broken();
    return nullptr;
  }
  Posted& posted = it->second;
  if (posted.bytes <= eager_bytes) throw broken();
  if (h.at >= posted.bytes || h.at % PartSender::part_bytes != 0 ||
      h.bytes != std::min<std::uint64_t>(PartSender::part_bytes, posted.bytes - h.at))
    throw Error(Code::internal, "TCP", "a part came that is not of its message");
  posted.came.resize(PartSender::parts_of(posted.bytes));
  return posted.data && !posted.came[h.at / PartSender::part_bytes] ? posted.data + h.at : nullptr;
}

void Mesh::part_arrived(const Channel& channel, const FrameHeader& h) {
  Incoming& in = incoming_[channel];
  const auto it = in.posted.find(h.number);
  if (it == in.posted.end()) return;
  auto came = it->second.came[h.at / PartSender::part_bytes];
  if (came) return;
  came = true;
  it->second.left -= h.bytes;
  // The memory is the receiver's soon: the same part on its way over another lane must not touch it.
  connections_.drop_arriving(channel.peer, [&](const FrameHeader& other) {
    return other.kind == FrameKind::piece && other.tag == h.tag && other.stream == h.stream &&
           other.number == h.number && other.at == h.at;
  });
  if (it->second.left > 0) return;
  in.posted.erase(it);
  answer(FrameKind::done, channel, h.number);
}

/// The receiver has all of a large message.
void Mesh::done(const Channel& channel, std::uint32_t number) {
  Outgoing& out = outgoing_[channel];
  const auto it = out.going.find(number);
  if (it == out.going.end()) {
    if (!connections_.has_spares(channel.peer) || static_cast<std::int32_t>(number - out.next) >= 0) throw broken();
    return;  // it was given up
  }
  const Ticket ticket = it->second;
  out.going.erase(it);
  parts_.end(ticket);
  connections_.forget(channel.peer, ticket);  // a part that goes again, though the first one has arrived
  request(ticket).left = 0;
}

// ---- frames

unsigned char* Mesh::place(Lane& lane, const FrameHeader& h) {
  const Channel channel{lane.peer(), h.stream, static_cast<Tag>(h.tag)};
  if (h.kind == FrameKind::bye || h.kind == FrameKind::room || h.kind == FrameKind::done) {
    if (h.bytes != 0) throw broken();
    return nullptr;
  }
  const auto into_string = [&](std::size_t most) {
    if (h.bytes > most) throw broken();
    std::string& body = arriving_[&lane];
    body.assign(h.bytes, 0);
    return reinterpret_cast<unsigned char*>(body.data());
  };
  if (h.kind == FrameKind::message && is_control(channel.tag)) return into_string(most_control_bytes);
  if (h.kind == FrameKind::piece && connections_.has_spares(lane.peer())) return place_part(channel, h);
  auto& in = incoming_[channel];
  const auto it = in.posted.find(h.number);
  if (h.kind == FrameKind::message && it == in.posted.end()) return into_string(eager_bytes);
  if ((h.kind != FrameKind::message && h.kind != FrameKind::piece) || it == in.posted.end()) throw broken();
  const Posted& posted = it->second;
  if (h.at > posted.bytes || h.bytes > posted.bytes - h.at || h.bytes > posted.left ||
      (h.kind == FrameKind::message && h.bytes != posted.bytes))
    throw Error(Code::internal, "TCP", "a message has another length than its receive");
  return posted.data ? posted.data + h.at : nullptr;
}

void Mesh::arrived(Lane& lane, const FrameHeader& h) {
  const Channel channel{lane.peer(), h.stream, static_cast<Tag>(h.tag)};
  switch (h.kind) {
    case FrameKind::bye:
      return connections_.said_bye(lane, h.number);
    case FrameKind::room:
      return room(channel, h.number);
    case FrameKind::done:
      return done(channel, h.number);
    case FrameKind::message:
      if (const auto body = arriving_.find(&lane); body != arriving_.end()) {
        std::string text = std::move(body->second);
        arriving_.erase(body);
        return arrived_whole(channel, h.number, std::move(text));
      }
      [[fallthrough]];
    case FrameKind::piece: {
      if (h.kind == FrameKind::piece && connections_.has_spares(lane.peer())) return part_arrived(channel, h);
      Incoming& in = incoming_[channel];
      const auto it = in.posted.find(h.number);
      if (it == in.posted.end()) throw broken();
      it->second.left -= h.bytes;
      if (it->second.left == 0) in.posted.erase(it);
      return;
    }
  }
  throw broken();
}

/// The receiver is ready for a large message.
void Mesh::room(const Channel& channel, std::uint32_t number) {
  Outgoing& out = outgoing_[channel];
  const auto waits = out.waiting.find(number);
  if (waits == out.waiting.end()) {
    out.room.insert(number);
    return;
  }
  const Ticket ticket = waits->second;
  out.waiting.erase(waits);
  send_large(ticket);
}

/// There was no receive for it when it began to arrive.
void Mesh::arrived_whole(const Channel& channel, std::uint32_t number, std::string body) {
  if (is_control(channel.tag)) {
    inbox_[{channel.stream, channel.tag}].push_back({channel.peer, std::move(body)});
    return;
  }
  Incoming& in = incoming_[channel];
  const auto it = in.posted.find(number);
  if (it == in.posted.end()) {
    in.early[number] = std::move(body);
    return;
  }
  if (it->second.bytes != body.size()) throw broken();
  if (it->second.data) std::memcpy(it->second.data, body.data(), body.size());
  in.posted.erase(it);
}

void Mesh::left(Lane& lane, const OutFrame& frame) {
  if (frame.header.kind == FrameKind::piece && connections_.has_spares(lane.peer())) return;  // done() tells
  if (frame.ticket != 0 && request(frame.ticket).left > 0) --request(frame.ticket).left;
}

/// Nobody waits for what a control stream would have carried.
void Mesh::peer_lost(int peer) {
  parts_.peer_lost(peer);
  for (Request& r : requests_)
    if (r.used && r.sends && r.channel.peer == peer && is_control(r.channel.tag)) r.left = 0;
}

}  // namespace hvd::transport::tcp
