#include "transport/tcp/carry/receives.h"

#include <algorithm>
#include <cstring>

#include "transport/tcp/carry/part_sender.h"

namespace hvd::transport::tcp {
namespace {

/// True if @p number is before @p next.  Numbers wrap.
bool is_before(std::uint32_t number, std::uint32_t next) { return static_cast<std::int32_t>(number - next) < 0; }

Channel channel_of(LaneName lane, const FrameHeader& h) {
  return {lane.peer, static_cast<int>(h.stream), static_cast<Tag>(h.tag)};
}

}  // namespace

// ---- receives

std::optional<std::uint32_t> Receives::post(const Channel& from, void* data, std::size_t bytes, Ticket ticket) {
  IncomingChannel& in = channels_[from];
  const std::uint32_t number = in.next++;
  if (!in.early.empty())
    if (const auto early = in.early.find(number); early != in.early.end()) {
      if (early->second.size() != bytes) throw wrong_length();
      if (bytes > 0) std::memcpy(data, early->second.data(), bytes);
      in.early.erase(early);
      taken(from, in, bytes);
      return std::nullopt;
    }
  Posted& p = in.posted[number];
  p.data = static_cast<unsigned char*>(data);
  p.bytes = p.left = bytes;
  p.ticket = ticket;
  if (bytes > eager_bytes) {
    in.later.push_back(number);
    ask(from, in);
  }
  return number;
}

void Receives::abandon(const Channel& from, std::uint32_t number) {
  const auto channel = channels_.find(from);
  if (channel == channels_.end()) return;
  IncomingChannel& in = channel->second;
  const auto it = in.posted.find(number);
  if (it == in.posted.end()) return;
  it->second.data = nullptr;
  it->second.ticket = 0;
  user_.drop_arriving(from.peer, [&](const FrameHeader& h) {
    return (h.kind == FrameKind::message || h.kind == FrameKind::piece) && h.number == number &&
           static_cast<int>(h.stream) == from.stream && static_cast<Tag>(h.tag) == from.tag;
  });
  if (!std::exchange(it->second.counted, false)) return;
  --in.rooms;  // the message may never arrive
  ask(from, in);
}

/// Sends FrameKind::room for posted receives of large messages, up to most_rooms.
void Receives::ask(const Channel& channel, IncomingChannel& in) {
  while (!in.later.empty() && in.rooms < most_rooms) {
    const std::uint32_t number = in.later.front();
    in.later.pop_front();
    const auto it = in.posted.find(number);
    if (it == in.posted.end()) continue;
    it->second.asked = true;
    it->second.counted = it->second.ticket != 0;
    in.rooms += it->second.counted ? 1 : 0;
    user_.answer(FrameKind::room, channel, number, 0);
  }
}

void Receives::complete(const Channel& channel, IncomingChannel& in, std::map<std::uint32_t, Posted>::iterator posted) {
  const Ticket ticket = posted->second.ticket;
  const bool counted = posted->second.counted;
  in.posted.erase(posted);
  if (ticket != 0) user_.received(ticket);
  if (!counted) return;
  --in.rooms;
  ask(channel, in);
}

std::optional<Message> Receives::poll(int stream, Tag tag) {
  const auto box = inbox_.find({stream, tag});
  if (box == inbox_.end() || box->second.empty()) return std::nullopt;
  Message m = std::move(box->second.front());
  box->second.pop_front();
  const Channel channel{m.from, stream, tag};
  taken(channel, channels_.at(channel), m.body.size());
  return m;
}

void Receives::forget(int stream) {
  std::erase_if(inbox_, [&](const auto& box) { return box.first.first == stream; });
  for (auto channel = channels_.begin(); channel != channels_.end();) {
    if (channel->first.stream != stream) {
      ++channel;
      continue;
    }
    user_.drop_arriving(channel->first.peer,
                        [&](const FrameHeader& h) { return static_cast<int>(h.stream) == stream; });
    channel = channels_.erase(channel);
  }
  std::erase_if(arriving_, [&](const auto& body) { return body.second.stream == stream; });
}

std::uint64_t Receives::kept_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, in] : channels_) bytes += in.untaken - in.taken;
  return bytes;
}

// ---- counted bytes

/// Counts a small message or control message that begins to arrive.  Throws Error{internal} beyond the limit.
void Receives::count(IncomingChannel& in, std::size_t bytes) {
  if (in.untaken > most_untaken_bytes)
    throw Error(Code::internal, "TCP", "a rank has sent more messages than this rank has granted");
  in.untaken += counted_bytes(bytes);
}

void Receives::taken(const Channel& channel, IncomingChannel& in, std::size_t bytes) {
  in.taken += counted_bytes(bytes);
  if (in.taken < credit_bytes) return;
  const std::uint64_t told = std::exchange(in.taken, 0);
  in.untaken -= told;
  user_.answer(FrameKind::credit, channel, 0, told);
}

// ---- frames

/// Returns the channel of a frame.  nullptr: the stream is closed.  Throws Error{internal} if the peer must not use the
/// stream.
Receives::IncomingChannel* Receives::find(const Channel& channel) {
  const auto known = channels_.find(channel);
  if (known != channels_.end()) return &known->second;
  return streams_.admits(channel.peer, channel.stream) ? &channels_[channel] : nullptr;
}

unsigned char* Receives::place(LaneName lane, const FrameHeader& h) {
  if (!is_channel(h)) throw broken_frame();
  const Channel channel = channel_of(lane, h);
  IncomingChannel* const in = find(channel);
  if (h.kind == FrameKind::piece) {
    if (is_control(channel.tag)) throw broken_frame();
    return in ? place_part(channel, *in, h) : nullptr;
  }
  // Small messages use only the first lane.  So they arrive in order, one after another.
  if (lane.number != 0) throw broken_frame();
  if (!in) return nullptr;
  count(*in, h.bytes);
  return is_control(channel.tag) ? place_body(lane, h, most_control_bytes) : place_message(lane, *in, h);
}

unsigned char* Receives::place_body(LaneName lane, const FrameHeader& h, std::size_t most) {
  if (h.bytes > most) throw broken_frame();
  Body& body = arriving_[lane];
  body.stream = static_cast<int>(h.stream);
  body.text.assign(h.bytes, 0);
  return reinterpret_cast<unsigned char*>(body.text.data());
}

unsigned char* Receives::place_message(LaneName lane, IncomingChannel& in, const FrameHeader& h) {
  const auto it = in.posted.find(h.number);
  if (it == in.posted.end()) {
    if (is_before(h.number, in.next) || in.early.count(h.number) > 0) throw broken_frame();  // a second copy
    return place_body(lane, h, eager_bytes);
  }
  if (h.bytes != it->second.bytes) throw wrong_length();
  if (h.bytes > eager_bytes) throw broken_frame();
  return it->second.data;
}

unsigned char* Receives::place_part(const Channel& channel, IncomingChannel& in, const FrameHeader& h) {
  const bool repeats = user_.parts_repeat(channel.peer);
  const auto it = in.posted.find(h.number);
  if (it == in.posted.end()) {
    if (!repeats || !is_before(h.number, in.next)) throw broken_frame();
    return nullptr;  // the message is complete
  }
  Posted& p = it->second;
  if (!p.asked) throw broken_frame();
  const std::size_t size = repeats || bulk_lanes_ > 1 ? PartSender::part_bytes : p.bytes;
  if (h.at >= p.bytes || h.at % size != 0 || h.bytes != std::min<std::uint64_t>(size, p.bytes - h.at))
    throw Error(Code::internal, "TCP", "a part came that is not of its message");
  p.parts.resize((p.bytes + size - 1) / size);
  const std::size_t part = h.at / size;
  if (!repeats) {
    if (p.parts[part]) throw Error(Code::internal, "TCP", "a part of a message came twice");
    p.parts[part] = true;
    return p.data ? p.data + h.at : nullptr;
  }
  return p.data && !p.parts[part] ? p.data + h.at : nullptr;
}

void Receives::arrived(LaneName lane, const FrameHeader& h) {
  const Channel channel = channel_of(lane, h);
  const auto known = channels_.find(channel);
  if (known == channels_.end()) return;  // the stream is closed
  IncomingChannel& in = known->second;
  if (h.kind == FrameKind::piece) return part_arrived(channel, in, h);
  if (const auto body = arriving_.find(lane); body != arriving_.end()) {
    std::string text = std::move(body->second.text);
    arriving_.erase(body);
    return arrived_whole(channel, in, h.number, std::move(text));
  }
  taken(channel, in, h.bytes);
  if (const auto it = in.posted.find(h.number); it != in.posted.end()) complete(channel, in, it);
}

/// Handles a message for which no receive was posted when the message began to arrive.
void Receives::arrived_whole(const Channel& channel, IncomingChannel& in, std::uint32_t number, std::string text) {
  if (is_control(channel.tag)) {
    inbox_[{channel.stream, channel.tag}].push_back({channel.peer, std::move(text)});
    return;
  }
  const auto it = in.posted.find(number);
  if (it == in.posted.end()) {
    in.early[number] = std::move(text);
    return;
  }
  if (it->second.bytes != text.size()) throw wrong_length();
  if (it->second.data && !text.empty()) std::memcpy(it->second.data, text.data(), text.size());
  taken(channel, in, text.size());
  complete(channel, in, it);
}

void Receives::part_arrived(const Channel& channel, IncomingChannel& in, const FrameHeader& h) {
  const auto it = in.posted.find(h.number);
  if (it == in.posted.end()) return;  // the message is complete without this copy
  Posted& p = it->second;
  const bool repeats = user_.parts_repeat(channel.peer);
  if (repeats) {
    const std::size_t part = h.at / PartSender::part_bytes;
    if (p.parts[part]) return;
    p.parts[part] = true;
    // The caller may soon use the memory.  So a copy of the part on another lane must not write to it.
    user_.drop_arriving(channel.peer, [&](const FrameHeader& other) {
      return other.kind == FrameKind::piece && other.tag == h.tag && other.stream == h.stream &&
             other.number == h.number && other.at == h.at;
    });
  }
  p.left -= h.bytes;
  if (p.left > 0) return;
  complete(channel, in, it);
  if (repeats) user_.answer(FrameKind::done, channel, h.number, 0);
}

}  // namespace hvd::transport::tcp
