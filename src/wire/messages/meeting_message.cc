#include "meeting_message.h"

#include <cstring>

#include "base/error.h"

namespace hvd::wire {
namespace {

/// The fixed part, little endian as all of our hosts.  After it: the ranks, the members with their texts, the text.
struct MeetingHead {
  std::uint8_t kind, zero[3];
  std::int32_t code, rank;
  std::uint32_t ranks, members, text;
  std::uint64_t token, epoch;
};
static_assert(sizeof(MeetingHead) == 40);

struct MemberHead {
  std::int32_t rank, host;
  std::uint64_t token, text;
};
static_assert(sizeof(MemberHead) == 24);

Error malformed(const char* why) { return {Code::usage, "meeting message", why}; }

std::string_view take(std::string_view& bytes, std::uint64_t count) {
  if (bytes.size() < count) throw malformed("is too short");
  const std::string_view part = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return part;
}

}  // namespace

std::string encode(const MeetingMessage& m) {
  const MeetingHead head{static_cast<std::uint8_t>(m.kind),
                         {},
                         m.code,
                         m.rank,
                         static_cast<std::uint32_t>(m.ranks.size()),
                         static_cast<std::uint32_t>(m.members.size()),
                         static_cast<std::uint32_t>(m.text.size()),
                         m.token,
                         m.epoch};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(m.ranks.data()), m.ranks.size() * sizeof m.ranks[0]);
  for (const MeetingMessage::Member& one : m.members) {
    const MemberHead part{one.rank, one.host, one.token, one.text.size()};
    bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
    bytes += one.text;
  }
  return bytes += m.text;
}

MeetingMessage decode_meeting_message(std::string_view bytes) {
  MeetingHead head;
  std::memcpy(&head, take(bytes, sizeof head).data(), sizeof head);
  if (head.kind < static_cast<std::uint8_t>(MeetingMessage::Kind::join) ||
      head.kind > static_cast<std::uint8_t>(MeetingMessage::Kind::expected))
    throw malformed("is of no known kind");
  MeetingMessage m{.kind = static_cast<MeetingMessage::Kind>(head.kind),
                   .code = head.code,
                   .rank = head.rank,
                   .token = head.token,
                   .epoch = head.epoch};
  const std::string_view ranks = take(bytes, std::uint64_t{head.ranks} * sizeof m.ranks[0]);
  m.ranks.resize(head.ranks);
  if (!ranks.empty()) std::memcpy(m.ranks.data(), ranks.data(), ranks.size());
  if (bytes.size() / sizeof(MemberHead) < head.members) throw malformed("has fewer members than it says");
  m.members.reserve(head.members);
  for (std::uint32_t i = 0; i < head.members; ++i) {
    MemberHead part;
    std::memcpy(&part, take(bytes, sizeof part).data(), sizeof part);
    m.members.push_back({part.rank, part.host, part.token, std::string(take(bytes, part.text))});
  }
  if (bytes.size() != head.text) throw malformed("has another length than it says");
  m.text = bytes;
  return m;
}

}  // namespace hvd::wire
