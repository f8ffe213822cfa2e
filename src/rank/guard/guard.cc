#include "rank/guard/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/files/leftovers.h"
#include "base/network/listen_filter.h"
#include "base/process/process.h"
#include "rank/guard/debug_console.h"
#include "rank/guard/guard_signals.h"
#include "rank/guard/host_cleanup.h"
#include "rank/guard/rank_process.h"
#include "rank/guard/time_limits.h"
#include "rank/launch/payload_store.h"
#include "wire/messages/hello.h"
#include "wire/messages/payload_ready.h"
#include "wire/messages/stack_picture.h"
#include "wire/messages/stop_request.h"

namespace hvd::rank {
namespace {

using std::chrono::milliseconds;
using wire::Type;

constexpr auto longest_loss = milliseconds(1500);       ///< without hvdrun, once it was there
constexpr auto grace_when_lost = milliseconds(400);     ///< hvdrun or mpirun is gone: nothing may live 3 s later
constexpr auto descendants_limit = milliseconds(2000);  ///< for killed descendants to disappear
constexpr double others_come_before = 10;  ///< seconds: ranks of this host that mpirun started before this one
constexpr auto others_may_end = milliseconds(5000);  ///< other guards of this host, when hvdrun is out of reach
constexpr auto daemon_may_end = milliseconds(1000);
constexpr auto tick = milliseconds(500);              ///< how often what has no descriptor is looked at
constexpr auto longest_sleep = milliseconds(30'000);  ///< a wake-up that was forgotten costs no more
constexpr auto steps_every = milliseconds(1000);      ///< hvdrun hears of a rank's steps
constexpr std::size_t operations_of_the_dead = 256;   ///< what a rank that failed had done last
constexpr auto no_time = Clock::time_point::max();

enum class State { connecting, waiting, running, ending, reported, done };

milliseconds seconds_to_ms(double s) { return milliseconds(static_cast<std::int64_t>(s * 1000)); }

class Guard {
 public:
  explicit Guard(const LaunchContext& call) : call_(call), environment_(current_environment()) {
    const sigset_t set = awaited_signals();
    signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    environment_source_ = Fd(call.environment_fd);
    meeting_ = Fd(call.meeting_fd);
    if (call.channel_fd >= 0) {
      candidates_.push_back(wire::connection_over(Fd(call.channel_fd)));
      return;
    }
    for (const std::string& address : call.addresses)
      candidates_.push_back(wire::connect({address, call.server_key}, call.client));
  }

  int run() {
    try_connect();                                 // a unix socket's connection is there at once
    if (connection_) outbox_.flush(*connection_);  // the answer comes while the daemon loads libpmix
    while (state_ != State::done) {
      wait();
      take_signals();
      if (state_ == State::connecting) try_connect();
      if (connection_) exchange();
      watch_connection();
      if (environment_source_) take_environment();
      if (process_) follow_rank();
      if (process_ && process_->shooting()) process_->step_stack(outbox_);
      if (console_.is_open()) console_.step(outbox_, Clock::now());
      if (connection_) {
        outbox_.flush(*connection_);
        take_messages();  // a send may have swallowed the edge that announced them
      }
    }
    if (!released_ && process_) {  // nobody else will look after this host
      kill_descendants(descendants_limit);
      remove_shared_memory_leftovers(born_wall_seconds_);
    }
    return exit_code_;
  }

 private:
  // ---- waiting ----
  void wait() {
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    if (connection_) fds.push_back({connection_->fd(), POLLIN, 0});
    for (const auto& candidate : candidates_) fds.push_back({candidate->fd(), POLLIN, 0});
    if (environment_source_) fds.push_back({environment_source_.get(), POLLIN, 0});
    if (process_ && !outbox_.is_full())
      for (const int fd : {process_->out_fd(), process_->err_fd(), process_->link_fd()})
        if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    if (process_ && process_->input().fd() >= 0) fds.push_back({process_->input().fd(), POLLOUT, 0});
    console_.add_fds(fds, outbox_);
    if (process_) process_->collectives().add_fds(fds);
    poll(fds.data(), fds.size(), static_cast<int>(patience().count()));
  }

  /// All that may happen is announced by a descriptor, as long as the rank has not loaded libhvd, whose pages in
  /// shared memory wake nobody.
  bool is_announced() const {
    return state_ == State::running && connection_ && !connection_->lost_for() && !alone_ && !process_->has_libhvd();
  }

  milliseconds patience() const {
    milliseconds most = is_announced() ? longest_sleep : tick;
    if (state_ == State::connecting) most = milliseconds(20);  // first_contact and a unix socket have no descriptor
    if (state_ == State::ending) most = milliseconds(5);
    if (process_ && process_->shooting()) most = milliseconds(10);
    if (!outbox_.empty()) most = std::min(most, milliseconds(20));
    Clock::time_point next = std::min(kill_at_, console_.deadline());
    if (process_) next = std::min({next, process_->deadline(), process_->collectives().deadline()});
    if (next == no_time) return most;
    const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now()) + milliseconds(1);
    return std::clamp(left, milliseconds(0), most);
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD && process_) {
        if (const auto paused = process_->paused()) outbox_.add(Type::paused, std::string(1, *paused ? '\1' : '\0'));
      } else if (number == parent_died_signal()) {
        alone_ = true;
        end_rank(grace_when_lost);
      } else if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) {
        end_rank(seconds_to_ms(manifest_.grace_seconds), number == SIGQUIT ? SIGTERM : number);
      } else if ((number == SIGUSR1 || number == SIGUSR2) && process_) {
        process_->signal(number);
      }
    }
  }

  // ---- hvdrun ----
  /// The first address that lets us in is the one; a host may be reachable by several.
  void try_connect() {
    for (auto& candidate : candidates_)
      if (candidate->connected()) {
        connection_ = std::move(candidate);
        candidates_.clear();
        state_ = State::waiting;
        say_hello();
        return;
      }
    if (Clock::now() - born_ < first_contact && !alone_ && !stopped_) return;
    if (!alone_ && !stopped_)
      std::fprintf(stderr, "hvdrank: rank %d got no answer from hvdrun at %s within %lld s\n", call_.rank,
                   call_.addresses.front().c_str(), static_cast<long long>(first_contact.count() / 1000));
    exit_code_ = static_cast<int>(Code::unavailable);
    state_ = State::done;
  }

  void say_hello() {
    wire::Hello h;
    h.protocol = wire::protocol_version;
    h.rank = call_.rank;
    h.pid = getpid();
    h.host = call_.host;
    h.local = call_.local;
    h.version = HVD_VERSION;
    h.mono_ns = mono_ns();
    outbox_.add(Type::hello, to_json(h));
  }

  void exchange() {
    outbox_.flush(*connection_);
    take_messages();
  }

  void take_messages() {
    while (auto frame = connection_->receive()) try {
        take(static_cast<Type>(frame->type), frame->body);
      } catch (const Error& e) { cannot_start(e); }
  }

  void take(Type type, const std::string& body) {
    switch (type) {
      case Type::manifest:
        return take_manifest(body);
      case Type::payload:
        return take_payload(body);
      case Type::stop: {
        const wire::StopRequest stop = wire::stop_request_from_json(body);
        return end_rank(seconds_to_ms(stop.grace_seconds), stop.signal);
      }
      case Type::signal: {
        std::int32_t number = 0;
        if (body.size() == sizeof number) std::memcpy(&number, body.data(), sizeof number);
        if (process_ && number == SIGTSTP) return process_->suspend();
        if (process_ && number > 0 && number < 65) process_->signal(number);
        return;
      }
      case Type::ping: {
        const std::int64_t now = mono_ns();
        return outbox_.add(Type::pong, body.substr(0, 8) + std::string(reinterpret_cast<const char*>(&now), 8));
      }
      case Type::stacks:
        if (state_ != State::running)
          outbox_.add(Type::stack, to_json(wire::StackPicture{}));
        else if (!process_->shooting())
          process_->begin_stack(body == "native");
        return;
      case Type::ask_operations: {
        std::uint32_t most = 0;
        if (body.size() == sizeof most) std::memcpy(&most, body.data(), sizeof most);
        if (process_) process_->ask_operations(most, Clock::now());
        return;
      }
      case Type::live_report:
        if (process_) process_->give_report(body);
        return;
      case Type::timeline:
        if (process_ && body.size() == 1) process_->record_timeline(body[0] == 1);
        return;
      case Type::input:
        if (process_) process_->input().add(body);
        return;
      case Type::console_input:
        return console_.take(body, process_ && process_->pid() ? process_->python_pid() : 0, outbox_);
      case Type::host_change:
        if (process_ && body.size() == 1) process_->tell_host_change(static_cast<unsigned char>(body[0]));
        return;
      case Type::complete:
        if (const pid_t d = daemon()) close_listeners(d);  // it needs no more connections
        return;
      case Type::release:
        if (body == "sweep") outbox_.add(Type::swept, to_json(sweep_host(call_.job, born_wall_seconds_)));
        released_ = true;
        state_ = State::done;
        return;
      default:
        return;  // of a later version
    }
  }

  /// mpirun's daemon on this host, the watchdog's parent; 0: it is gone, or this is mpirun's own host.
  static pid_t daemon() {
    const auto watchdog = process_entry(getppid());
    const pid_t above = watchdog ? watchdog->parent : 0;
    const std::string name = above > 1 ? process_name(above) : "";
    return name == "orted" || name == "prted" ? above : 0;
  }

  /// Whether mpirun's daemon has children besides this guard's watchdog.
  static bool has_other_children(pid_t daemon) {
    const std::vector<pid_t> children = children_of(daemon);
    return std::any_of(children.begin(), children.end(),
                       [](pid_t child) { return child != getppid() && !process_name(child).empty(); });
  }

  void take_manifest(const std::string& body) {
    if (state_ != State::waiting) return;
    manifest_ = wire::manifest_from_json(body);
    if (manifest_.rank != call_.rank) throw Error(Code::internal, "manifest", "is another rank's");
    if (manifest_.payload.kind != wire::PayloadKind::pickle) return start(-1);
    if (manifest_.payload.deliver) {
      if (!payload_) payload_ = std::make_unique<PayloadStore>();
      return;
    }
    if (manifest_.payload.path.empty()) return;  // another one follows when the host's copy is there
    payload_copy_ = Fd(open(manifest_.payload.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!payload_copy_)
      throw Error(Code::unavailable, "",
                  manifest_.payload.name + ": this host's copy cannot be read: " + errno_text(errno));
    start(payload_copy_.get());
  }

  void take_payload(const std::string& piece) {
    if (!payload_ || state_ != State::waiting) return;
    if (!piece.empty()) return payload_->add(piece);
    payload_->seal();
    outbox_.add(Type::payload_ready, to_json(wire::PayloadReady{payload_->path()}));
    // A descriptor of its own: the position in the file is not shared with those who open the path.
    payload_copy_ = Fd(open(payload_->path().c_str(), O_RDONLY | O_CLOEXEC));
    start(payload_copy_ ? payload_copy_.get() : payload_->fd());
  }

  /// The host daemon's variables for the rank; the end of the stream ends them.
  void take_environment() {
    std::array<char, 4096> piece;
    ssize_t n;
    while ((n = recv(environment_source_.get(), piece.data(), piece.size(), MSG_DONTWAIT)) > 0)
      environment_text_.append(piece.data(), static_cast<std::size_t>(n));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    environment_source_.reset();
    for (std::size_t at = 0, end; (end = environment_text_.find('\0', at)) != std::string::npos; at = end + 1) {
      const std::string line = environment_text_.substr(at, end - at);
      if (const std::size_t equals = line.find('='); equals != std::string::npos)
        environment_[line.substr(0, equals)] = line.substr(equals + 1);
    }
    if (ready_payload_fd_) try {
        start(*ready_payload_fd_);
      } catch (const Error& e) { cannot_start(e); }
  }

  // ---- the rank ----
  void start(int payload_fd) {
    if (stopped_) return cannot_start(Error(Code::usage, "", "stopped before it started"));
    ready_payload_fd_ = payload_fd;
    if (environment_source_) return;  // the host daemon's part follows
    process_ = std::make_unique<RankProcess>(manifest_, environment_, payload_fd, std::move(meeting_),
                                             call_.client.secret_key);
    state_ = State::running;
    outbox_.add(Type::started, to_json(process_->started()));
    if (!process_->started().python.empty()) outbox_.add(Type::phase, "python");
  }

  void cannot_start(const Error& e) {
    if (process_ || state_ == State::reported) return;
    wire::DeathRecord r;
    r.rank = call_.rank;
    r.host = manifest_.host;
    r.time_ns = mono_ns();
    r.cause = stopped_ ? wire::Cause::stopped : wire::Cause::unstarted;
    r.code = stopped_ ? 128 + SIGTERM : static_cast<int>(e.code);
    r.text = e.what();
    r.hint = e.hint;
    report(r);
  }

  void report(const wire::DeathRecord& r) {
    outbox_.add(Type::death, to_json(r));
    outbox_.add(Type::clean, "");
    state_ = State::reported;
    reported_at_ = Clock::now();
  }

  /// Asks the rank to end, and sees to it that it does.  A second call can only shorten the time left.
  void end_rank(milliseconds grace, int signal = SIGTERM) {
    const bool first = !stopped_;
    stopped_ = true;
    if (state_ == State::waiting) cannot_start(Error(Code::usage, "", "stopped before it started"));
    if (state_ != State::running) return;
    kill_at_ = std::min(kill_at_, Clock::now() + grace);
    if (!first) return;
    process_->signal(signal);
    process_->wake();
  }

  void follow_rank() {
    const auto now = Clock::now();
    // What is ready is read even while it ends: at most the outbox's worth in one round.
    while (process_->pump(outbox_, now) && !outbox_.is_full()) {}
    process_->expire(outbox_, now);
    process_->step_collectives(outbox_, now);
    if (now >= look_at_) {
      look_at_ = now + tick;
      if (const auto standing = process_->standing()) outbox_.add(Type::standing, to_json(*standing));
      if (now >= read_steps_at_) {
        read_steps_at_ = now + steps_every;
        process_->send_steps(outbox_);
      }
    }
    if (const auto taken = process_->input().step())
      outbox_.add(Type::taken, {reinterpret_cast<const char*>(&*taken), sizeof *taken});
    if (state_ == State::running && now >= kill_at_) {
      process_->signal(SIGKILL);
      kill_descendants_once();
      kill_at_ = no_time;
    }
    if (process_->reap()) {
      console_.close(outbox_);
      state_ = State::ending;
      kill_at_ = no_time;
      clean_until_ = now + descendants_limit;
    }
    if (state_ == State::ending) end(now);
  }

  /// The rank is dead: its descendants go, then its streams end, then the record is written.
  void end(Clock::time_point now) {
    if (!process_->alone() && now < clean_until_) return kill_descendants_once(&killed_);
    const bool streams_end = process_->out_fd() < 0 && process_->err_fd() < 0 && process_->link_fd() < 0;
    if (outbox_.is_full()) return;                   // hvdrun is behind: nothing of the output may be lost
    if (!streams_end && now < clean_until_) return;  // else somebody outside our reach holds them
    process_->send_steps(outbox_);
    wire::DeathRecord r = process_->record(outbox_, stopped_);
    if (r.cause != wire::Cause::finished && r.cause != wire::Cause::unstarted)
      process_->send_operations(outbox_, operations_of_the_dead);
    for (const auto& [pid, name] : killed_) r.ended.push_back(name);
    if (alone_ && r.cause == wire::Cause::stopped) r.text = "hvdrank or mpirun, which it ran under, was killed";
    report(r);
  }

  // ---- the end ----
  void watch_connection() {
    if (!connection_ || state_ == State::done) return;
    const auto lost = connection_->lost_for();
    const bool gone = lost && *lost > longest_loss;
    if (gone || alone_) end_rank(grace_when_lost);
    if (state_ == State::waiting && (gone || alone_)) state_ = State::done;
    if (state_ != State::reported) return;
    if (gone && !alone_) return end_daemon();
    // Nobody may be left to release us, or only for the moments that mpirun needs to die.
    if (gone || (alone_ && Clock::now() - reported_at_ > milliseconds(300) && outbox_.empty())) state_ = State::done;
    if (alone_ && Clock::now() - reported_at_ > milliseconds(1000)) state_ = State::done;
  }

  /// hvdrun is out of reach for good: the daemon would wait for the network to come back.  The last guard of the host
  /// ends it, and with it this one's work is done.
  void end_daemon() {
    const auto now = Clock::now();
    const pid_t d = daemon();
    if (d && !daemon_asked_at_) {
      if (has_other_children(d) && now - reported_at_ < others_may_end) return;
      kill(d, SIGTERM);
      daemon_asked_at_ = now;
    }
    if (d && now - *daemon_asked_at_ < daemon_may_end) return;
    if (d) kill(d, SIGKILL);
    state_ = State::done;
  }

  const LaunchContext& call_;
  Environment environment_;
  Fd environment_source_;  ///< open until the host daemon has said all
  std::string environment_text_;
  Fd meeting_;                           ///< until the rank has it
  std::optional<int> ready_payload_fd_;  ///< what start() was called with
  const Clock::time_point born_ = Clock::now();
  const double born_wall_seconds_ = wall_seconds() - others_come_before;
  State state_ = State::connecting;
  int exit_code_ = 0;
  Fd signals_;
  std::vector<std::unique_ptr<wire::Connection>> candidates_;
  std::unique_ptr<wire::Connection> connection_;
  Outbox outbox_;
  wire::RankManifest manifest_;
  std::unique_ptr<PayloadStore> payload_;
  Fd payload_copy_;
  std::unique_ptr<RankProcess> process_;
  KilledProcesses killed_;
  DebugConsole console_;  ///< hvdrun attach
  bool released_ = false;
  bool stopped_ = false;  ///< the rank's end was asked for
  bool alone_ = false;    ///< the watchdog or mpirun has died
  Clock::time_point kill_at_ = no_time, clean_until_ = no_time, reported_at_{}, look_at_{}, read_steps_at_{};
  std::optional<Clock::time_point> daemon_asked_at_;  ///< to end
};

}  // namespace

int run_guard(const LaunchContext& call) {
  try {
    const int code = Guard(call).run();
    return kill_descendants(descendants_limit) ? code : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "hvdrank: rank %d: %s\n", call.rank, e.what());
    kill_descendants(descendants_limit);
    return static_cast<int>(e.code);
  }
}

}  // namespace hvd::rank
