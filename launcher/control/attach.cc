#include "launcher/control/attach.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/maker.h"
#include "launcher/control/query_server.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int attach_signal = 60;     // src/python/hvd/_attach.py has it too
constexpr auto callback_limit = 10s;  // for the main thread to come back from native code
constexpr auto last_answers = 5s;     // for what is still to come when the input has ended
constexpr auto busy_limit = 3s;       // for a console that was just left to end
constexpr auto ask_limit = 5s;

Fd listen_for(pid_t pid) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = formatted("hvdrun-attach-{}", pid);  // behind a zero byte: no file
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd.get(), 4) != 0)
    throw Error(Code::unavailable, "attach", "cannot listen for the rank: " + errno_text(errno),
                errno == EADDRINUSE ? "somebody else is attached to it" : "");
  return fd;
}

/// The rank's call; nothing when it has not come within the limit, or the rank has ended.  Others are turned away.
Fd await_rank(const Fd& listener, const Fd& process, pid_t pid) {
  const auto deadline = Clock::now() + callback_limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd fds[] = {{listener.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
    if (left <= 0) return Fd();
    if (::poll(fds, 2, static_cast<int>(left)) <= 0) continue;
    if (fds[1].revents) return Fd();
    Fd link(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ucred who{};
    socklen_t size = sizeof who;
    if (link && ::getsockopt(link.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == pid) return link;
  }
}

/// Copies lines to the rank and its answers to stdout until one of them has ended.
int relay(const Fd& link) {
  bool input = true;
  Clock::time_point deadline = Clock::time_point::max();
  char piece[4096];
  for (;;) {
    int wait = -1;
    if (!input) {
      if (Clock::now() >= deadline) return 0;
      wait = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count());
    }
    pollfd fds[] = {{link.get(), POLLIN, 0}, {input ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(fds, 2, wait) < 0 && errno != EINTR) return 1;
    if (fds[0].revents) {
      const ssize_t n = ::read(link.get(), piece, sizeof piece);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return 0;
      if (!write_all(STDOUT_FILENO, {piece, static_cast<std::size_t>(n)})) return 1;
      if (!input) deadline = Clock::now() + last_answers;
    }
    if (fds[1].revents) {
      const ssize_t n = ::read(STDIN_FILENO, piece, sizeof piece);
      if (n < 0 && errno == EINTR) continue;
      if (n > 0 && ::send(link.get(), piece, static_cast<std::size_t>(n), MSG_NOSIGNAL) == n) continue;
      input = false;
      deadline = Clock::now() + last_answers;
      ::shutdown(link.get(), SHUT_WR);
    }
  }
}

}  // namespace

int attach_to_rank(const std::string& folder, long long rank) {
  const std::string name = formatted("rank {}", rank);
  const auto card = nlohmann::json::parse(ask_job(folder, name, ask_limit), nullptr, false);
  if (!card.is_object() || card.empty()) throw Error(Code::usage, name, "the job has no such rank");
  if (!card.value("local", false))
    throw Error(Code::unavailable, name, "runs on " + card.value("host", "another host"),
                "so far attach reaches the ranks of hvdrun's own host; hvdrun stacks shows where the others are");
  const auto pid = static_cast<pid_t>(card.value("pid", 0));
  const Fd process(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
  if (!process) throw Error(Code::unavailable, name, "does not run");
  if (!catches_signal(pid, attach_signal))
    throw Error(Code::unavailable, name, "cannot be attached to",
                "it is no Python program that has imported hvd, or uses signal 60 itself");
  const Fd listener = listen_for(pid);
  const auto deadline = Clock::now() + busy_limit;
  Fd link;
  for (char first = '-'; first == '-';) {
    if (::syscall(SYS_pidfd_send_signal, process.get(), attach_signal, nullptr, 0) != 0)
      throw Error(Code::unavailable, name, "cannot be signalled: " + errno_text(errno));
    link = await_rank(listener, process, pid);
    pollfd answer{link.get(), POLLIN, 0};
    const auto limit = static_cast<int>(std::chrono::milliseconds(callback_limit).count());
    if (!link || ::poll(&answer, 1, limit) <= 0 || ::recv(link.get(), &first, 1, 0) != 1) {
      link.reset();
      break;
    }
    if (first == '-' && Clock::now() > deadline)
      throw Error(Code::unavailable, name, "somebody else is attached to it");
    if (first == '-') ::poll(nullptr, 0, 50);
  }
  if (!link) {
    pollfd end{process.get(), POLLIN, 0};
    if (::poll(&end, 1, 0) > 0) throw Error(Code::unavailable, name, "has ended");
    const std::string stack = ask_job(folder, formatted("stack of {}", rank), ask_limit);
    if (!stack.empty()) std::fprintf(stderr, "%s is in native code:\n%s", name.c_str(), stack.c_str());
    throw Error(Code::timeout, name, formatted("did not come to Python code within {} s", callback_limit.count()),
                "it goes on undisturbed; hvdrun stacks shows its native frames too");
  }
  std::fprintf(stderr, "hvdrun: attached to %s, process %d; quit or Ctrl-D lets it go on. Limits on stalls run on.\n",
               name.c_str(), static_cast<int>(pid));
  return relay(link);
}

}  // namespace hvd::launcher
