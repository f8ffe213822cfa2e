#include "launcher/join/join.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/load.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/join/join_token.h"
#include "launcher/mapping/topology.h"
#include "launcher/process/script_shell.h"
#include "launcher/process/signal_queue.h"
#include "wire/messages/join_offer.h"
#include "wire/messages/message.h"

namespace hvd::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using wire::Type;
constexpr milliseconds between_tries{300}, connect_limit{3000};
constexpr std::size_t most_script_bytes = 2u << 20, piece_bytes = 64u << 10;

/// The job's address, as the user typed it.
struct Place {
  std::string text, host, port;
};

Place place_of(const CommandLine& line) {
  if (line.payload.size() > 1 && line.payload[1].starts_with('-'))
    throw Error(Code::usage, "join", line.payload[1] + " comes after the address", "write options before HOST:PORT");
  const std::string text = line.payload.size() == 1 ? line.payload[0] : "";
  const std::size_t colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : to_integer(text.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535 || colon == 0)
    throw Error(Code::usage, "join", "needs the host and port of the job",
                "for example: hvdrun join --token-file token launcher:4999");
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {text, host, text.substr(colon + 1)};
}

void say(const std::string& line) { std::fprintf(stderr, "hvdrun: %s\n", printable(line).c_str()); }

/// True if the address accepts a connection.  Otherwise @p why gets the reason.
bool answers(const addrinfo& at, std::string* why) {
  const Fd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  socklen_t size = sizeof error;
  if (!fd) {
    error = errno;
  } else if (::connect(fd.get(), at.ai_addr, at.ai_addrlen) != 0 && (error = errno) == EINPROGRESS) {
    pollfd on{fd.get(), POLLOUT, 0};
    error = ETIMEDOUT;
    if (::poll(&on, 1, static_cast<int>(connect_limit.count())) == 1)
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  *why = error == 0 ? "" : errno_text(error);
  return error == 0;
}

/// The numeric address at which the job's port answers now; empty, with the reason, if none does.
std::string reachable_address(const Place& place, std::string* why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &found); error != 0) {
    *why = ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    char text[NI_MAXHOST];
    if (answers(*a, why) &&
        ::getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      return text;
  }
  return {};
}

std::string own_name() {
  char text[256] = {};
  return ::gethostname(text, sizeof text - 1) == 0 ? text : "";
}

class Joining {
 public:
  Joining(Place place, const Settings& settings, int slots)
      : place_(std::move(place)),
        keys_(join_keys(settings)),
        limit_(settings.number("elastic-timeout")),
        slots_(slots),
        until_(Clock::now() + milliseconds(static_cast<long long>(limit_ * 1000))) {
    become_subreaper();
  }

  int run() {
    if (const auto signal = reach()) return 128 + *signal;
    const wire::JoinOffer offer{wire::protocol_version, HVD_VERSION, own_name(), slots_, address_};
    send(Type::join, to_json(offer));
    say(formatted("joined {} as {} with {}", place_.text, offer.host, count_of(slots_, "slot")));
    for (;;) {
      wait(milliseconds(200));
      while (const auto number = signals_.next())
        if (ends_job(*number)) {
          // Asks the job to let this host leave.  The job ends, or continues without this host; this process waits for
          // either.
          if (!std::exchange(is_leaving_, true)) send(Type::leave, {});
          if (!shell_) return 128 + *number;
        }
      while (const auto frame = connection_->receive())
        if (const auto code = take(*frame)) return *code;
      if (shell_) watch_shell();
      if (is_leaving_ && !shell_) return 128 + SIGTERM;
      if (connection_->lost_for()) return be_lost();
    }
  }

 private:
  /// Connects and proves the token; repeats both until they succeed.  Returns the number of a signal that ended the
  /// wait, or nothing.
  std::optional<int> reach() {
    std::string told;
    for (;;) {
      std::string why;
      address_ = reachable_address(place_, &why);
      if (!address_.empty()) {
        if (connect()) return std::nullopt;
        why = "it answers, but has not accepted this token: do both ends have the same one?";
      }
      while (const auto number = signals_.next())
        if (ends_job(*number)) return number;
      if (Clock::now() > until_)
        throw Error(Code::unavailable, place_.text, formatted("no job took this host in {:g} s: {}", limit_, why),
                    "does hvdrun --listen run there? give more time with --elastic-timeout");
      if (why != told) say(formatted("waiting up to {:g} s (--elastic-timeout) for {}: {}", limit_, place_.text, why));
      told = why;
      pollfd on{signals_.fd(), POLLIN, 0};
      ::poll(&on, 1, static_cast<int>(between_tries.count()));
    }
  }

  bool connect() {
    const std::string host = address_.find(':') == std::string::npos ? address_ : "[" + address_ + "]";
    connection_ = wire::connect({formatted("tcp://{}:{}", host, place_.port), keys_.launcher.public_key}, keys_.host);
    const auto end = std::min(Clock::now() + milliseconds(static_cast<int>(5000 * load_factor())), until_);
    do wait(milliseconds(50));
    while (!connection_->connected() && Clock::now() < end);
    if (connection_->connected()) return true;
    connection_.reset();
    return false;
  }

  void wait(milliseconds limit) {
    pollfd on[3] = {
        {signals_.fd(), POLLIN, 0}, {connection_->fd(), POLLIN, 0}, {shell_ ? shell_->output_fd() : -1, POLLIN, 0}};
    ::poll(on, 3, static_cast<int>(limit.count()));
  }

  /// Returns the exit code if the job has ended.
  std::optional<int> take(const wire::Frame& frame) {
    const auto type = static_cast<Type>(frame.type);
    if (type == Type::script && !frame.body.empty()) {
      script_ += frame.body;
      if (script_.size() > most_script_bytes) throw Error(Code::internal, place_.text, "the script is too long");
    } else if (type == Type::script) {
      shell_ = std::make_unique<ScriptShell>(std::exchange(script_, {}));
    } else if (type == Type::script_stop && shell_) {
      shell_->stop();
    } else if (type == Type::dismiss) {
      const std::size_t blank = frame.body.find(' ');
      say(formatted("{}: {}", place_.text, blank == std::string::npos ? frame.body : frame.body.substr(blank + 1)));
      if (shell_) end_shell();
      return static_cast<int>(std::clamp<long long>(to_integer(frame.body.substr(0, blank)).value_or(1), 0, 255));
    }
    return std::nullopt;
  }

  /// Passes on the shell's output, and its end.
  void watch_shell() {
    const std::optional<int> code = shell_->code();
    const std::string output = shell_->read_output();
    for (std::size_t at = 0; at < output.size(); at += piece_bytes)
      send(Type::script_output, output.substr(at, piece_bytes));
    if (!code) return;
    shell_.reset();
    send(Type::script_end, std::to_string(*code));
  }

  /// Ends the shell.  The daemon has also lost hvdrun, or gets hvdrun's order to end.  So the ranks get their grace
  /// period.
  void end_shell() {
    shell_->stop();
    while (!shell_->code()) wait(milliseconds(50));
    shell_.reset();
  }

  int be_lost() {
    if (shell_) end_shell();
    throw Error(Code::peer_lost, place_.text, "the connection was lost before the job's end",
                "hvdrun there was killed, or the network is cut");
  }

  /// If the queue is full, hvdrun has stopped reading.  Output is then lost.  An end is not lost, because the
  /// connection ends too.
  void send(Type type, const std::string& body) { connection_->send({static_cast<std::uint16_t>(type), body}); }

  const Place place_;
  const JoinKeys keys_;
  const double limit_;
  const int slots_;
  const Clock::time_point until_;
  SignalQueue signals_;
  std::string address_, script_;
  std::unique_ptr<wire::Connection> connection_;
  std::unique_ptr<ScriptShell> shell_;
  bool is_leaving_ = false;
};

}  // namespace

int join_job(const CommandLine& line, const Environment& environment) {
  const Settings& settings = line.settings;
  const int gpus = static_cast<int>(usable_gpus(environment).size());
  const int slots = settings.has("slots-per-host") ? *settings.integer("slots-per-host") : std::max(1, gpus);
  return Joining(place_of(line), settings, slots).run();
}

}  // namespace hvd::launcher
