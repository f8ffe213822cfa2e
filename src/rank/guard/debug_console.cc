#include "rank/guard/debug_console.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/process/maker.h"
#include "base/process/process.h"

namespace hvd::rank {

namespace {

using namespace std::chrono_literals;
using wire::ConsoleInput;
using wire::ConsoleOutput;
using wire::ConsoleRefusal;

constexpr int attach_signal = 60;        // also in src/python/hvd/_job/attach.py
constexpr auto callback_limit = 10s;     // limit until the main thread returns from native code
constexpr auto last_answers = 5s;        // limit for output after the end of the input
constexpr auto busy_limit = 3s;          // limit until an earlier console ends
constexpr auto before_next_call = 50ms;  // time before the rank is called again
constexpr std::size_t most_typed_bytes = 1u << 20;
constexpr auto never = std::chrono::steady_clock::time_point::max();

std::string body_of(ConsoleOutput word, std::string_view bytes = {}) {
  std::string body(1, static_cast<char>(word));
  return body.append(bytes);
}

}  // namespace

void DebugConsole::take(std::string_view body, pid_t pid, Outbox& outbox) {
  if (body.empty()) return;
  switch (static_cast<ConsoleInput>(body[0])) {
    case ConsoleInput::open:
      return open(pid, outbox);
    case ConsoleInput::text:
      if (!is_open() || input_ended_) return;
      typed_.append(body.substr(1));
      if (typed_.size() > most_typed_bytes) shut(outbox);  // the console does not read its input
      return;
    case ConsoleInput::end:
      input_ended_ = true;
      return;
    case ConsoleInput::leave:
      if (is_open()) shut(outbox);  // otherwise hvdrun already knows the end, and another console may have begun
      return;
  }
}

void DebugConsole::open(pid_t pid, Outbox& outbox) {
  if (is_open()) return;  // hvdrun opens one console for each rank, and its messages come in order
  typed_.clear();
  input_ended_ = false;
  pid_ = pid;
  if (pid <= 0) return refuse(ConsoleRefusal::absent, "", outbox);
  if (!catches_signal(pid, attach_signal)) return refuse(ConsoleRefusal::deaf, "", outbox);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name =
      formatted("hvdrun-attach-{}", pid);  // after a zero byte: an abstract address, which is no file
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ || ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_.get(), 4) != 0)
    return refuse(ConsoleRefusal::name, errno_text(errno), outbox);
  give_up_at_ = Clock::now() + busy_limit;
  call(outbox);
}

void DebugConsole::call(Outbox& outbox) {
  link_.reset();
  if (::kill(pid_, attach_signal) != 0) return refuse(ConsoleRefusal::absent, errno_text(errno), outbox);
  state_ = State::called;
  deadline_ = Clock::now() + callback_limit;
}

void DebugConsole::refuse(ConsoleRefusal why, const std::string& text, Outbox& outbox) {
  outbox.add(wire::Type::console, body_of(ConsoleOutput::refused, std::string(1, static_cast<char>(why)) + text));
  shut(outbox);
}

void DebugConsole::shut(Outbox& outbox) {
  listener_.reset();
  link_.reset();
  typed_.clear();
  state_ = State::closed;
  deadline_ = never;
  outbox.add(wire::Type::console, body_of(ConsoleOutput::end));
}

void DebugConsole::close(Outbox& outbox) {
  if (!is_open()) return;
  if (state_ == State::open) return shut(outbox);
  refuse(ConsoleRefusal::absent, "", outbox);
}

void DebugConsole::add_fds(std::vector<pollfd>& fds, const Outbox& outbox) const {
  if (state_ == State::called) fds.push_back({listener_.get(), POLLIN, 0});
  if (state_ == State::connected) fds.push_back({link_.get(), POLLIN, 0});
  if (state_ != State::open) return;
  const int wanted = (outbox.is_full() ? 0 : POLLIN) | (typed_.empty() ? 0 : POLLOUT);
  // poll() reports a closed link even without wanted events, so it would return again and again.
  if (wanted != 0) fds.push_back({link_.get(), static_cast<short>(wanted), 0});
}

void DebugConsole::step(Outbox& outbox, Clock::time_point now) {
  if (state_ == State::called) accept_rank();
  if (state_ == State::connected) read_answer(outbox, now);
  if (state_ == State::open) carry(outbox, now);
  if (now < deadline_) return;
  if (state_ == State::resting) return call(outbox);
  if (state_ == State::open) return shut(outbox);
  if (is_open()) refuse(ConsoleRefusal::native, "", outbox);
}

/// Accepts only the rank's connection, and closes connections of other processes.
void DebugConsole::accept_rank() {
  for (;;) {
    Fd link(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!link) return;
    if (const auto peer = peer_of(link.get()); !peer || peer->pid != pid_) continue;
    link_ = std::move(link);
    state_ = State::connected;
    return;
  }
}

/// Reads the rank's first byte.  '+': the console is open.  '-': another console is open.
void DebugConsole::read_answer(Outbox& outbox, Clock::time_point now) {
  char first = 0;
  const ssize_t n = ::recv(link_.get(), &first, 1, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == 1 && first == '+') {
    listener_.reset();
    state_ = State::open;
    deadline_ = never;
    return outbox.add(wire::Type::console, body_of(ConsoleOutput::open));
  }
  if (n != 1 || first != '-') return refuse(ConsoleRefusal::native, "", outbox);
  if (now >= give_up_at_) return refuse(ConsoleRefusal::busy, "", outbox);
  link_.reset();
  state_ = State::resting;
  deadline_ = now + before_next_call;
}

void DebugConsole::carry(Outbox& outbox, Clock::time_point now) {
  while (!typed_.empty()) {
    const ssize_t n = ::send(link_.get(), typed_.data(), typed_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    typed_.erase(0, static_cast<std::size_t>(n));
  }
  if (input_ended_ && typed_.empty() && deadline_ == never) {
    ::shutdown(link_.get(), SHUT_WR);
    deadline_ = now + last_answers;
  }
  char piece[16384];
  while (!outbox.is_full()) {
    const ssize_t n = ::recv(link_.get(), piece, sizeof piece, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return shut(outbox);
    outbox.add(wire::Type::console, body_of(ConsoleOutput::text, {piece, static_cast<std::size_t>(n)}));
    if (input_ended_ && typed_.empty()) deadline_ = now + last_answers;
  }
}

}  // namespace hvd::rank
