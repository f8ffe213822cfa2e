/// The guard's part of hvdrun attach, with a child that answers as a rank does.
#include "rank/guard/debug_console.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>

#include "base/format.h"

using namespace hvd;
using namespace hvd::rank;

namespace {

constexpr int attach_signal = 60;

/// Connects at a signal, sends `first`, and echoes its input until that ends.
void answer(char first) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = formatted("hvdrun-attach-{}", ::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const Fd link(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (::connect(link.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return;
  if (::send(link.get(), &first, 1, MSG_NOSIGNAL) != 1) return;
  char piece[256];
  ssize_t n = 0;
  while ((n = ::recv(link.get(), piece, sizeof piece, 0)) > 0)
    if (::send(link.get(), piece, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n) return;
}

/// A process that answers attach_signal with `first`; 0: it does not handle the signal.
class AnsweringChild {
 public:
  explicit AnsweringChild(char first) {
    sigset_t set, before;
    ::sigemptyset(&set);
    ::sigaddset(&set, attach_signal);
    ::sigprocmask(SIG_BLOCK, &set, &before);
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      if (first) std::signal(attach_signal, [](int) {});
      if (::write(ready[1], "r", 1) != 1) ::_exit(1);
      for (int number = 0; first && ::sigwait(&set, &number) == 0;) answer(first);
      for (;;) ::pause();
    }
    char r = 0;
    CHECK(::read(ready[0], &r, 1) == 1);
    ::close(ready[0]), ::close(ready[1]);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
  }
  ~AnsweringChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  AnsweringChild(const AnsweringChild&) = delete;
  AnsweringChild& operator=(const AnsweringChild&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

/// Returns the console's text for hvdrun: `bytes` of it, or as much as arrives within 10 s.
struct ConsoleTrial {
  DebugConsole console;
  Outbox outbox;
  std::string said;

  struct TextSink : wire::Connection {
    explicit TextSink(std::string& text) : said(text) {}
    bool send(const wire::Frame& frame) override {
      CHECK(frame.type == static_cast<std::uint16_t>(wire::Type::console));
      said += frame.body;
      return true;
    }
    std::optional<wire::Frame> receive() override { return {}; }
    int fd() const override { return -1; }
    bool connected() override { return true; }
    std::optional<std::chrono::milliseconds> lost_for() override { return {}; }
    std::string& said;
  } sink{said};

  void tell(std::string_view body, pid_t pid) {
    console.take(body, pid, outbox);
    outbox.flush(sink);
  }
  void run_until(std::size_t bytes) {
    const auto limit = DebugConsole::Clock::now() + std::chrono::seconds(10);
    while (said.size() < bytes && DebugConsole::Clock::now() < limit) {
      std::vector<pollfd> fds;
      console.add_fds(fds, outbox);
      ::poll(fds.data(), fds.size(), 20);
      console.step(outbox, DebugConsole::Clock::now());
      outbox.flush(sink);
    }
  }
};

}  // namespace

TEST_CASE("debug console: opens, carries bytes both ways, and ends with the input") {
  const AnsweringChild child('+');
  ConsoleTrial guard;
  guard.tell("o", child.pid());
  guard.run_until(1);
  CHECK(guard.said == "o");
  guard.tell("tp secret\n", child.pid());
  guard.run_until(11);
  CHECK(guard.said == "otp secret\n");
  guard.tell("e", child.pid());
  guard.run_until(12);
  CHECK(guard.said == "otp secret\ne");
  CHECK_FALSE(guard.console.is_open());
}

TEST_CASE("debug console: who leaves when it has ended does not end the next one") {
  const AnsweringChild child('+');
  ConsoleTrial guard;
  guard.tell("o", child.pid());
  guard.run_until(1);
  guard.tell("l", child.pid());
  CHECK(guard.said == "oe");
  guard.tell("l", child.pid());  // in transit when the end was reported
  CHECK(guard.said == "oe");
  guard.tell("o", child.pid());
  guard.run_until(3);
  CHECK(guard.said == "oeo");
  CHECK(guard.console.is_open());
  guard.console.close(guard.outbox);  // the rank has ended
  guard.outbox.flush(guard.sink);
  CHECK(guard.said == "oeoe");
}

TEST_CASE("debug console: refusals") {
  ConsoleTrial guard;
  guard.tell("o", 0);
  CHECK(guard.said == "rae");
  guard.said.clear();
  const AnsweringChild deaf('\0');
  guard.tell("o", deaf.pid());
  CHECK(guard.said == "rde");
  guard.said.clear();
  const AnsweringChild busy('-');
  guard.tell("o", busy.pid());
  guard.run_until(3);  // after three seconds
  CHECK(guard.said == "rbe");
  CHECK_FALSE(guard.console.is_open());
}
