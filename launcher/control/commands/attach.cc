#include "launcher/control/commands/attach.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "launcher/control/commands/query_server.h"
#include "wire/messages/console.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using wire::ConsoleRefusal;

constexpr auto first_line_limit =
    20s;                            // the guard waits 10 s for the rank; the job waits 3 s for another console's end
constexpr auto last_answers = 10s;  // after the end of the input; the guard waits 5 s for the last answers
constexpr auto ask_limit = 5s;

/// The job's first line.  Nothing: the job has closed the connection.
std::string first_line(const Fd& link, const std::string& name) {
  std::string line;
  const auto deadline = Clock::now() + first_line_limit;
  for (char c = 0;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0)
      throw Error(Code::timeout, name, "its host does not answer", "hvdrun stacks says which ranks answer");
    pollfd ready{link.get(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t n = ::recv(link.get(), &c, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};
    if (c == '\n') return line;
    line += c;
  }
}

[[noreturn]] void refuse(const std::string& folder, long long rank, const std::string& name, std::string_view why) {
  const std::string text(why.substr(1));
  if (why[0] == console_line::no_such_rank) throw Error(Code::usage, name, "the job has no such rank");
  switch (static_cast<ConsoleRefusal>(why[0])) {
    case ConsoleRefusal::absent:
      throw Error(Code::unavailable, name, "does not run" + (text.empty() ? "" : ": " + text));
    case ConsoleRefusal::deaf:
      throw Error(Code::unavailable, name, "cannot be attached to",
                  "it is no Python program that has imported hvd, or uses signal 60 itself");
    case ConsoleRefusal::name:
      throw Error(Code::unavailable, name, "its host cannot listen for it: " + text,
                  "another process there uses the socket's name");
    case ConsoleRefusal::busy:
      throw Error(Code::unavailable, name, "another debugger is attached to it");
    case ConsoleRefusal::native:
      break;
  }
  const std::string stack = ask_job(folder, formatted("stack of {}", rank), ask_limit);
  if (!stack.empty()) std::fprintf(stderr, "%s is in native code:\n%s", name.c_str(), stack.c_str());
  throw Error(Code::timeout, name, "did not come to Python code within 10 s",
              "it goes on undisturbed; hvdrun stacks shows its native frames too");
}

/// Copies lines to the rank, and the rank's answers to stdout, until the user or the rank ends the console.
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
  const Fd link = call_job(folder, formatted("console {}", rank), ask_limit);
  const std::string line = first_line(link, name);
  if (line.size() > console_line::refused.size() && line.starts_with(console_line::refused))
    refuse(folder, rank, name, std::string_view(line).substr(console_line::refused.size()));
  if (!line.starts_with(console_line::opened)) throw Error(Code::unavailable, name, "has ended");
  const std::string where = line.substr(console_line::opened.size());
  const std::size_t blank = where.find(' ');
  std::fprintf(stderr,
               "hvdrun: attached to %s, process %s on %s; quit or Ctrl-D lets it go on. Limits on stalls run on.\n",
               name.c_str(), where.substr(0, blank).c_str(), where.substr(blank + 1).c_str());
  return relay(link);
}

}  // namespace hvd::launcher
