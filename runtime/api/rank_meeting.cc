#include "api/rank_meeting.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "base/environment.h"
#include "base/error.h"
#include "base/network/framed_socket.h"
#include "base/process/process.h"
#include "memory/futex.h"

namespace hvd::api {
namespace {

using memory::now_ns;
using wire::MeetingMessage;
using Kind = MeetingMessage::Kind;

constexpr double answer_seconds = 5;  ///< wait for hvdrun's list of missing ranks

constexpr std::int64_t look_every_ns = 1'000'000'000, longest_look_ns = 2'000'000'000;

std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e9); }

/// A number that marks this call's request and its answer.  The number contains the pid.  So an answer to an earlier
/// process of this rank has another number.
std::uint64_t next_token() {
  static std::atomic<std::uint32_t> last{0};
  return static_cast<std::uint64_t>(::getpid()) << 32 | ++last;
}

Error gone() { return {Code::peer_lost, "init", "the host daemon, through which ranks find each other, is gone"}; }

}  // namespace

std::optional<RankMeeting> RankMeeting::of(int fd) {
  // A process may inherit the variable, and have another file open under that number.
  int domain = 0, type = 0;
  socklen_t bytes = sizeof domain;
  if (fd < 0 || ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX) return std::nullopt;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_STREAM) return std::nullopt;
  const auto peer = peer_of(fd);
  if (!peer) return std::nullopt;
  if (peer->uid != ::geteuid())
    throw Error(Code::usage, "init",
                "this process runs as uid " + std::to_string(::geteuid()) + ", its host daemon as uid " +
                    std::to_string(peer->uid),
                "start hvdrun as the user that the ranks must have");
  return RankMeeting(fd);
}

bool RankMeeting::is_hidden() {
  const std::string socket = std::string(wire::meeting_fd_variable) + "=";
  if (environment_value(wire::meeting_fd_variable)) return false;
  bool is_there = false;
  std::ifstream begin("/proc/self/environ", std::ios::binary);
  for (std::string variable; std::getline(begin, variable, '\0');) {
    if (variable == "HVD_SIZE=1") return false;
    if (variable.starts_with(socket)) is_there = of(std::atoi(variable.c_str() + socket.size())).has_value();
  }
  return is_there;
}

void RankMeeting::say(const MeetingMessage& message) {
  const std::string body = encode(message);
  if (body.size() > wire::most_join_bytes)
    throw Error(Code::usage, "init", "the list of ranks is too long", "leave it out for all ranks");
  if (!send_frame(fd_, 0, body, Deadline::max())) throw gone();
}

std::optional<MeetingMessage> RankMeeting::next(std::int64_t end_ns, int* me) {
  const auto left = std::chrono::nanoseconds(std::max<std::int64_t>(end_ns - now_ns(), 0));
  const ReceivedFrame received = receive_frame(fd_, wire::most_answer_bytes, std::chrono::steady_clock::now() + left);
  if (received.ended) throw gone();
  if (!received.frame) return std::nullopt;
  *me = static_cast<int>(received.frame->tag);
  return wire::decode_meeting_message(received.frame->body);
}

std::optional<MeetingMessage> RankMeeting::next_within(std::int64_t& left_ns, int* me) {
  for (;;) {
    const std::int64_t begin = now_ns();
    auto message = next(begin + std::min(left_ns, look_every_ns), me);
    left_ns -= std::min(now_ns() - begin, longest_look_ns);
    if (message || left_ns <= 0) return message;
  }
}

std::optional<std::string> RankMeeting::revoked(std::uint64_t epoch) {
  int me = -1;
  const auto m = next(now_ns(), &me);
  return m && m->kind == Kind::revoked && m->epoch >= epoch ? std::optional(m->text) : std::nullopt;
}

RankMeeting::Expected RankMeeting::expect(double limit_seconds) {
  const std::uint64_t token = next_token();
  say({.kind = Kind::expect, .token = token});
  for (std::int64_t left_ns = in_ns(limit_seconds);;) {
    int me = -1;
    const auto m = next_within(left_ns, &me);
    if (!m) throw Error(Code::timeout, "init", "hvdrun does not tell the next world");
    const bool is_mine = std::any_of(m->members.begin(), m->members.end(), [&](const MeetingMessage::Member& one) {
      return one.rank == me && one.token == token;
    });
    if (!is_mine) continue;
    if (m->kind == Kind::refused) throw Error(static_cast<Code>(m->code), "init", m->text);
    if (m->kind == Kind::expected) return {m->rank, {m->ranks.begin(), m->ranks.end()}};
  }
}

RankMeeting::Gathered RankMeeting::meet(const std::vector<int>& ranks, const std::string& text, double limit_seconds,
                                        std::uint64_t forming) {
  MeetingMessage join{.kind = Kind::join, .token = next_token(), .ranks = {ranks.begin(), ranks.end()}, .text = text};
  say(join);
  std::int64_t left_ns = in_ns(limit_seconds);
  for (bool withdrawn = false;;) {
    int me = -1;
    auto m = next_within(left_ns, &me);
    if (!m && withdrawn) throw Error(Code::timeout, "init", "waited too long for the other ranks");
    if (!m) {  // hvdrun's answer names the missing ranks
      say({.kind = Kind::withdraw, .token = join.token});
      withdrawn = true;
      left_ns = in_ns(answer_seconds);
      continue;
    }
    if (m->kind == Kind::revoked && forming != 0 && m->epoch >= forming) throw Error(Code::peer_lost, "init", m->text);
    const auto own = std::find_if(m->members.begin(), m->members.end(), [&](const MeetingMessage::Member& one) {
      return one.rank == me && one.token == join.token;
    });
    if (own == m->members.end()) continue;  // the answer to an earlier call
    if (m->kind == Kind::refused) {
      const auto code = static_cast<Code>(m->code);
      throw Error(code, "init", m->text, code == Code::timeout ? "did every rank call init?" : "");
    }
    Gathered g;
    g.epoch = m->epoch;
    if (epoch_ == 0) epoch_ = m->epoch;
    g.rank = static_cast<int>(own - m->members.begin());
    g.members = std::move(m->members);
    return g;
  }
}

}  // namespace hvd::api
