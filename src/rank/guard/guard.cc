#include "rank/guard/guard.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files/leftovers.h"
#include "base/network/held_port.h"
#include "base/process/maker.h"
#include "base/process/process.h"
#include "rank/common/awaited_signals.h"
#include "rank/common/time_limits.h"
#include "rank/guard/debug_console.h"
#include "rank/guard/guard_life.h"
#include "rank/guard/host_cleanup.h"
#include "rank/guard/rank_inputs.h"
#include "rank/guard/rank_process.h"
#include "rank/streams/hvdrun_connection.h"
#include "rank/under_mpirun/mpirun_daemon.h"
#include "wire/messages/hello.h"
#include "wire/messages/payload_ready.h"
#include "wire/messages/stack_picture.h"
#include "wire/messages/stop_request.h"

namespace hvd::rank {
namespace {

using std::chrono::milliseconds;
using wire::Type;
using State = GuardLife::State;

constexpr double others_come_before = 10;  ///< seconds; mpirun may have started other ranks of this host earlier
constexpr int most_parent_stops = 7;       ///< looks, one a second; hvdrun's own limit for its children is 5 s
constexpr std::size_t operations_of_the_dead = 256;  ///< number of last operations in a failed rank's report

milliseconds seconds_to_ms(double s) { return milliseconds(static_cast<std::int64_t>(s * 1000)); }

/// The number that a message consists of; 0 if it has another length.
template <class T>
T number_in(const std::string& body) {
  T number{};
  if (body.size() == sizeof number) std::memcpy(&number, body.data(), sizeof number);
  return number;
}

/// Handles messages for a rank that has started.  Ignores types of a later version.
void pass_on(RankProcess& rank, Type type, const std::string& body) {
  switch (type) {
    case Type::signal: {
      const auto number = number_in<std::int32_t>(body);
      if (number == SIGTSTP) return rank.child().suspend();
      if (number > 0 && number < 65) rank.child().signal(number);
      return;
    }
    case Type::ask_operations:
      return rank.ask_operations(number_in<std::uint32_t>(body), Clock::now());
    case Type::live_report:
      return rank.give_report(body);
    case Type::timeline:
      if (body.size() == 1) rank.record_timeline(body[0] == 1);
      return;
    case Type::pause_limit:
      return rank.pause_limit(mono_ns() + std::int64_t{number_in<std::uint32_t>(body)} * 1'000'000'000);
    case Type::input:
      return rank.input().add(body);
    case Type::host_change:
      if (body.size() == 1) rank.tell_host_change(static_cast<unsigned char>(body[0]));
      return;
    default:
      return;
  }
}

/// The I/O of a guard.  GuardLife makes the decisions.
class Guard {
 public:
  explicit Guard(const LaunchContext& call) : call_(call), inputs_(call) {
    const sigset_t set = awaited_signals();
    signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (call.channel_fd >= 0)
      hvdrun_.begin(Fd(call.channel_fd));
    else
      hvdrun_.begin(call.addresses, call.server_key, call.client);
  }

  int run() {
    try_connect();    // a Unix socket connects at once
    hvdrun_.flush();  // hvdrun then answers while the daemon loads libpmix
    while (!life_.is_done()) {
      wait();
      take_signals();
      if (life_.state() == State::connecting) try_connect();
      hvdrun_.flush();
      take_messages();
      watch_connection();
      watch_parent();
      if (inputs_.environment_fd() >= 0) take_environment();
      if (process_) follow_rank();
      if (process_ && process_->shooting()) process_->step_stack(hvdrun_.outbox());
      if (console_.is_open()) console_.step(hvdrun_.outbox(), Clock::now());
      hvdrun_.flush();
      take_messages();  // a send may have consumed the edge-triggered event of these messages
    }
    hvdrun_.flush();  // the release asks for a report of leftovers, and may have been the last message
    if (!life_.is_released() && process_) {  // no other process cleans up this host
      kill_descendants(GuardLife::descendants_limit);
      remove_shared_memory_leftovers(born_wall_seconds_);
    }
    return life_.has_failed_to_connect() ? static_cast<int>(Code::unavailable) : 0;
  }

 private:
  // ---- waiting ----
  void wait() {
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    hvdrun_.add_to(fds);
    if (inputs_.environment_fd() >= 0) fds.push_back({inputs_.environment_fd(), POLLIN, 0});
    if (process_ && !hvdrun_.outbox().is_full()) process_->add_fds(fds);
    if (process_ && process_->input().fd() >= 0) fds.push_back({process_->input().fd(), POLLOUT, 0});
    console_.add_fds(fds, hvdrun_.outbox());
    if (process_) process_->collectives().add_fds(fds);
    GuardLife::Awaited awaited{.outbox_is_empty = hvdrun_.outbox().empty(), .next = console_.deadline()};
    if (parent_stops_ > 0) awaited.next = std::min(awaited.next, parent_look_at_);
    if (process_) {
      // libhvd writes to shared memory, which does not wake poll().
      awaited.is_announced = hvdrun_.is_there() && !hvdrun_.lost_for() && !process_->has_libhvd();
      awaited.takes_picture = process_->shooting();
      awaited.next = std::min({awaited.next, process_->streams().deadline(), process_->collectives().deadline()});
    }
    poll(fds.data(), fds.size(), static_cast<int>(life_.patience(Clock::now(), awaited).count()));
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD && process_) {
        if (const auto paused = process_->child().paused())
          hvdrun_.send(Type::paused, std::string(1, *paused ? '\1' : '\0'));
      } else if (number == parent_died_signal()) {
        carry_out(life_.parent_died(Clock::now()));
      } else if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) {
        end_rank(inputs_.manifest().grace_seconds, number == SIGQUIT ? SIGTERM : number);
      } else if ((number == SIGUSR1 || number == SIGUSR2) && process_) {
        process_->child().signal(number);
      }
    }
  }

  // ---- hvdrun ----
  void try_connect() {
    if (hvdrun_.connect()) {
      life_.connected();
      return say_hello();
    }
    if (life_.not_connected(Clock::now()) == GuardLife::Contact::give_up)
      std::fprintf(stderr, "hvdrank: rank %d got no answer from hvdrun at %s within %lld s\n", call_.rank,
                   call_.addresses.front().c_str(), static_cast<long long>(first_contact.count() / 1000));
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
    if (call_.rank == 0 && !call_.local) hold_ports();
    for (const HeldPort& port : held_) h.ports.push_back(port.number());
    hvdrun_.send(Type::hello, to_json(h));
  }

  /// Holds ports for servers of the script's libraries (torch, JAX).  On hvdrun's own host, hvdrun holds the ports.
  void hold_ports() try {
    while (held_.size() < wire::ports_of_rank_0) held_.emplace_back();
  } catch (const Error&) {  // hvdrun chooses ports, which no process holds
    held_.clear();
  }

  void watch_connection() {
    if (!hvdrun_.is_there()) return;
    const auto now = Clock::now();
    const bool gone = GuardLife::is_gone(hvdrun_.lost_for());
    carry_out(life_.watch(now, gone, hvdrun_.outbox().empty()));
    if (life_.must_end_daemon(gone) && mpirun_.end(now, life_.reported_at())) life_.finish();
  }

  /// A host daemon that a signal has stopped passes on no message.  On other hosts than hvdrun's, only its guards
  /// notice.
  void watch_parent() {
    const auto now = Clock::now();
    if (now < parent_look_at_) return;
    parent_look_at_ = now + GuardLife::steps_every;
    const bool is_stopped = process_state(getppid()) == 'T' && runs_this_program(getppid());
    parent_stops_ = is_stopped ? parent_stops_ + 1 : 0;
    if (parent_stops_ > most_parent_stops) kill(getppid(), SIGCONT), parent_stops_ = 0;
  }

  void take_messages() {
    while (auto frame = hvdrun_.receive()) try {
        take(static_cast<Type>(frame->type), frame->body);
      } catch (const Error& e) { cannot_start(e); }
  }

  void take(Type type, const std::string& body) {
    switch (type) {
      case Type::manifest:
        if (life_.state() != State::waiting) return;
        inputs_.take_manifest(body, call_.rank);
        return start();
      case Type::payload:
        return take_payload(body);
      case Type::stop: {
        const wire::StopRequest stop = wire::stop_request_from_json(body);
        return end_rank(stop.grace_seconds, stop.signal);
      }
      case Type::ping: {
        const std::int64_t now = mono_ns();
        return hvdrun_.send(Type::pong, body.substr(0, 8) + std::string(reinterpret_cast<const char*>(&now), 8));
      }
      case Type::stacks:
        if (life_.state() != State::running)
          hvdrun_.send(Type::stack, to_json(wire::StackPicture{}));
        else if (!process_->shooting())
          process_->begin_stack(body == "native");
        return;
      case Type::console_input:
        return console_.take(body, process_ && !process_->child().has_ended() ? process_->python_pid() : 0,
                             hvdrun_.outbox());
      case Type::complete:
        return MpirunDaemon::close_listeners();  // the job needs no further connections
      case Type::release:
        if (body == "sweep") hvdrun_.send(Type::swept, to_json(sweep_host(call_.job, born_wall_seconds_)));
        return life_.release();
      default:
        if (process_) pass_on(*process_, type, body);
    }
  }

  void take_payload(const std::string& piece) {
    if (life_.state() != State::waiting) return;
    const auto path = inputs_.take_payload(piece);
    if (!path) return;
    hvdrun_.send(Type::payload_ready, to_json(wire::PayloadReady{*path}));
    start();
  }

  void take_environment() {
    inputs_.read_environment();
    if (life_.state() == State::waiting) try {
        start();
      } catch (const Error& e) { cannot_start(e); }
  }

  // ---- the rank ----
  /// Starts the rank if all inputs have come.
  void start() {
    if (life_.is_stopped() && inputs_.payload_is_ready()) return carry_out(GuardLife::StopOrder::report_unstarted);
    if (!inputs_.are_complete()) return;
    process_ = std::make_unique<RankProcess>(inputs_.manifest(), inputs_.environment(), inputs_.payload_fd(),
                                             inputs_.take_meeting_socket(), call_.client.secret_key);
    life_.rank_started();
    hvdrun_.send(Type::started, to_json(process_->started()));
    if (!process_->started().python.empty()) hvdrun_.send(Type::phase, "python");
  }

  void cannot_start(const Error& e) {
    if (life_.state() != State::waiting) return;
    const bool stopped = life_.is_stopped();
    wire::DeathRecord r;
    r.rank = call_.rank;
    r.host = inputs_.manifest().host;
    r.time_ns = mono_ns();
    r.cause = stopped ? wire::Cause::stopped : wire::Cause::unstarted;
    r.code = stopped ? 128 + SIGTERM : static_cast<int>(e.code);
    r.text = e.what();
    r.hint = e.hint;
    report(r);
  }

  void report(const wire::DeathRecord& r) {
    hvdrun_.send(Type::death, to_json(r));
    hvdrun_.send(Type::clean, "");
    life_.report(Clock::now());
  }

  void end_rank(double grace_seconds, int signal) {
    carry_out(life_.stop(Clock::now(), seconds_to_ms(grace_seconds)), signal);
  }

  void carry_out(GuardLife::StopOrder order, int signal = SIGTERM) {
    if (order == GuardLife::StopOrder::report_unstarted)
      cannot_start(Error(Code::usage, "", "stopped before it started"));
    if (order != GuardLife::StopOrder::signal_rank) return;
    process_->child().signal(signal);
    process_->child().wake();
  }

  void follow_rank() {
    const auto now = Clock::now();
    Outbox& outbox = hvdrun_.outbox();
    // Ready output is read even while the rank ends.  One round reads until the outbox is full.
    while (process_->pump(outbox, now) && !outbox.is_full()) {}
    process_->streams().expire(outbox, now);
    process_->step_collectives(outbox, now);
    if (life_.look_is_due(now)) {
      if (const auto standing = process_->standing(now)) outbox.add(Type::standing, to_json(*standing));
      if (life_.steps_are_due(now)) process_->send_steps(outbox);
    }
    if (const auto taken = process_->input().step())
      outbox.add(Type::taken, {reinterpret_cast<const char*>(&*taken), sizeof *taken});
    if (life_.kill_is_due(now)) {
      process_->child().signal(SIGKILL);
      kill_descendants_once();
    }
    if (process_->child().reap()) {
      console_.close(outbox);
      life_.rank_ended(now);
    }
    if (life_.state() == State::ending) end(now);
  }

  void end(Clock::time_point now) {
    const GuardLife::Remains remains{.descendants = !process_->child().is_alone(),
                                     .streams = !process_->is_silent(),
                                     .outbox_is_full = hvdrun_.outbox().is_full()};
    switch (life_.next_of_end(now, remains)) {
      case GuardLife::EndOrder::wait:
        return;
      case GuardLife::EndOrder::kill_descendants:
        return kill_descendants_once(&killed_);
      case GuardLife::EndOrder::report:
        return report_end();
    }
  }

  void report_end() {
    process_->send_steps(hvdrun_.outbox());
    wire::DeathRecord r = process_->record(hvdrun_.outbox(), life_.is_stopped());
    if (r.cause != wire::Cause::finished && r.cause != wire::Cause::unstarted)
      process_->send_operations(hvdrun_.outbox(), operations_of_the_dead);
    for (const auto& [pid, name] : killed_) r.ended.push_back(name);
    if (life_.is_alone() && r.cause == wire::Cause::stopped) {
      r.text = "its parent (hvdrank, ssh or mpirun) was killed";
      r.fact = wire::DeathFact::alone;
    }
    report(r);
  }

  const LaunchContext& call_;
  Clock::time_point parent_look_at_{};
  int parent_stops_ = 0;  ///< looks in a row that found the parent stopped
  const double born_wall_seconds_ = wall_seconds() - others_come_before;
  GuardLife life_{Clock::now()};
  RankInputs inputs_;
  std::vector<HeldPort> held_;  ///< until the guard ends: the script may open its server at any time
  Fd signals_;
  HvdrunConnection hvdrun_;
  std::unique_ptr<RankProcess> process_;  ///< null until the rank starts
  KilledProcesses killed_;
  DebugConsole console_;  ///< hvdrun attach
  MpirunDaemon mpirun_;
};

}  // namespace

int run_guard(const LaunchContext& call) {
  try {
    const int code = Guard(call).run();
    return kill_descendants(GuardLife::descendants_limit) ? code : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "hvdrank: rank %d: %s\n", call.rank, e.what());
    kill_descendants(GuardLife::descendants_limit);
    return static_cast<int>(e.code);
  }
}

}  // namespace hvd::rank
