#include "pmix_message.h"

#include <cstring>

#include "base/error.h"

namespace hvd::wire {
namespace {

/// The fixed part, little endian as all of our hosts are; then the ranks, then the data.
struct Head {
  std::uint8_t kind, failed;
  std::uint16_t zero;
  std::int32_t rank, status;
  std::uint32_t ranks;
  std::uint64_t token;
};
static_assert(sizeof(Head) == 24);

}  // namespace

std::string encode(const PmixMessage& m) {
  const Head head{static_cast<std::uint8_t>(m.kind),          m.failed, 0, m.rank, m.status,
                  static_cast<std::uint32_t>(m.ranks.size()), m.token};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(m.ranks.data()), m.ranks.size() * sizeof m.ranks[0]);
  return bytes += m.data;
}

PmixMessage decode_pmix_message(std::string_view bytes) {
  const auto bad = [](const char* why) { return Error(Code::usage, "PMIx message", why); };
  Head head;
  if (bytes.size() < sizeof head) throw bad("is too short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.kind < static_cast<std::uint8_t>(PmixMessage::Kind::fence) ||
      head.kind > static_cast<std::uint8_t>(PmixMessage::Kind::continued))
    throw bad("is of no known kind");
  bytes.remove_prefix(sizeof head);
  PmixMessage m{.kind = static_cast<PmixMessage::Kind>(head.kind),
                .failed = head.failed != 0,
                .rank = head.rank,
                .status = head.status,
                .token = head.token};
  if (bytes.size() / sizeof m.ranks[0] < head.ranks) throw bad("has fewer ranks than it says");
  m.ranks.resize(head.ranks);
  if (head.ranks != 0) std::memcpy(m.ranks.data(), bytes.data(), head.ranks * sizeof m.ranks[0]);
  m.data = bytes.substr(head.ranks * sizeof m.ranks[0]);
  return m;
}

}  // namespace hvd::wire
