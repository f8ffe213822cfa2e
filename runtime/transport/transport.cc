/// @file transport.cc — blocking helper functions that form a world.
#include "transport/transport.h"

#include <cstring>

#include "base/error.h"
#include "transport/limit.h"

namespace hvd::transport {
namespace {

void append(std::string& to, const std::string& part) {
  const std::uint64_t n = part.size();
  to.append(reinterpret_cast<const char*>(&n), sizeof n);
  to += part;
}

std::vector<std::string> split(const std::string& all, int count) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (int i = 0; i < count; ++i) {
    std::uint64_t n;
    std::memcpy(&n, all.data() + at, sizeof n);
    parts.push_back(all.substr(at + sizeof n, n));
    at += sizeof n + n;
  }
  return parts;
}

}  // namespace

void send_blocking(Transport& t, int to, Tag tag, const std::string& body, double limit_seconds) {
  Limit limit(limit_seconds);
  const Ticket ticket = t.isend(to, tag, body.data(), body.size());
  while (!t.test(ticket))
    if (!limit.pause()) {
      t.abandon(ticket);
      throw Error(Code::timeout, "init", "rank " + std::to_string(to) + " did not take a message in time",
                  "did every rank call init?");
    }
}

Message receive_blocking(Transport& t, Tag tag, double limit_seconds, const std::string& waiting_for) {
  Limit limit(limit_seconds);
  for (;;) {
    if (auto m = t.poll(tag)) return std::move(*m);
    if (!limit.pause())
      throw Error(Code::timeout, "init", "waited too long for " + waiting_for, "did every rank call init?");
  }
}

std::vector<std::string> exchange(Transport& t, const std::string& mine, double limit_seconds) {
  if (t.size() == 1) return {mine};
  if (t.rank() != 0) {
    send_blocking(t, 0, Tag::exchange, mine, limit_seconds);
    return split(receive_blocking(t, Tag::exchange, limit_seconds, "rank 0 to join").body, t.size());
  }
  std::vector<std::string> all(t.size());
  std::vector<bool> here(t.size());
  all[0] = mine;
  here[0] = true;
  for (int left = t.size() - 1; left > 0; --left) {
    int missing = 0;
    while (here[missing]) ++missing;
    Message m = receive_blocking(t, Tag::exchange, limit_seconds,
                                 std::to_string(left) + " rank(s) to join, first rank " + std::to_string(missing));
    all[m.from] = std::move(m.body);
    here[m.from] = true;
  }
  std::string joined;
  for (const std::string& part : all) append(joined, part);
  for (int r = 1; r < t.size(); ++r) send_blocking(t, r, Tag::exchange, joined, limit_seconds);
  return all;
}

}  // namespace hvd::transport
