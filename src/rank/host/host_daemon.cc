#include "rank/host/host_daemon.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/leftovers.h"
#include "base/files/own_folder.h"
#include "base/process/process.h"
#include "rank/common/awaited_signals.h"
#include "rank/common/time_limits.h"
#include "rank/host/guard_relay.h"
#include "rank/host/guard_table.h"
#include "rank/host/host_pmix.h"
#include "rank/host/meeting_relay.h"
#include "rank/host/mpi_variables.h"
#include "rank/streams/hvdrun_connection.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/messages/hello.h"
#include "wire/messages/pmix_message.h"

namespace hvd::rank {
namespace {

using Clock = std::chrono::steady_clock;
using wire::PmixMessage;
using wire::Type;

std::string temporary_folder() {
  const char* const temporary = environment_value("TMPDIR");
  return temporary && *temporary == '/' ? temporary : "/tmp";
}

/// The daemon's loop.  The loop connects the parts: guards, relay, meetings, PMIx, and the connection to hvdrun.
class HostDaemon {
 public:
  HostDaemon(const LaunchContext& call, const std::vector<int>& ranks, const std::string& mpi_folder, bool elastic)
      : call_(call), elastic_(elastic), relays_(!call.addresses.front().starts_with("unix://")) {
    const sigset_t set = awaited_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    become_subreaper();
    forget_outer_launcher();
    say_hello(ranks.front());
    if (!elastic)  // PMIx begins first, because it takes most of a start's time
      pmix_.start({mpi_folder, temporary_folder(), call.host, ranks.front()});
    start_guards(ranks);
    signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    hvdrun_.begin(call.addresses, call.server_key, call.client, call.other_addresses);
    connect();
    hvdrun_.flush();
  }

  int run() {
    while (!is_over()) {
      wait();
      take_signals();
      reap();
      continue_stopped();
      connect();
      take_pmix_events();
      for (std::string& message : meetings_.turn()) hvdrun_.send(Type::meeting, std::move(message));
      exchange();
      if (kill_at_ && Clock::now() > *kill_at_) guards_.signal(SIGKILL);
    }
    for (const HostPmix::News& event : pmix_.last_words()) take(event);
    exchange();
    pmix_.end();
    const bool clean = kill_descendants(clean_up_limit);
    // In an elastic job, an earlier daemon may have been killed with all its ranks.  The files of these ranks remain.
    if (elastic_) remove_files_of_gone_ranks();
    if (guard_was_killed_) remove_shared_memory_leftovers(born_wall_seconds_);
    if (!hvdrun_.is_there()) return static_cast<int>(Code::unavailable);
    return clean ? 0 : 1;
  }

 private:
  bool is_over() const {
    if (!guards_.living().empty()) return false;
    const bool has_time = !kill_at_ || Clock::now() < *kill_at_;
    const bool is_heard = hvdrun_.is_there() ? !hvdrun_.lost_for() : hvdrun_.is_trying();
    if (relays_ && has_time && is_heard && !(relay_.is_empty() && hvdrun_.outbox().empty())) return false;
    if (!elastic_ || released_) return true;
    // hvdrun forgets a daemon whose connection is lost, and starts another one.
    return !is_heard;
  }

  // ---- guards ----
  void start_guard(int rank) { guards_.start(call_, rank, meetings_.add(rank), relays_ ? relay_.add(rank) : Fd()); }

  /// Starts the first guard, or throws.  If a later one cannot be started, hvdrun ends the job and tells why.
  void start_guards(const std::vector<int>& ranks) {
    start_guard(ranks.front());
    for (std::size_t i = 1; i < ranks.size(); ++i) start_or_tell(ranks[i]);
  }

  /// Starts a guard, or tells hvdrun why not.
  bool start_or_tell(int rank) {
    try {
      start_guard(rank);
      return true;
    } catch (const Error& e) {
      meetings_.remove(rank);
      tell(PmixMessage{.kind = PmixMessage::Kind::guard_ended, .rank = rank, .status = -1, .data = e.what()});
      return false;
    }
  }

  /// Starts a guard for one more rank of an elastic job.  @p body  Type::start_rank: the rank's number
  void start_later(const std::string& body) {
    std::int32_t rank = -1;
    if (body.size() != sizeof rank || !elastic_ || released_) return;
    std::memcpy(&rank, body.data(), sizeof rank);
    if (start_or_tell(rank)) give_environment(guards_.size() - 1, std::nullopt);  // without it, the other ranks go on
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      if (guards_.stopped().take(pid, status, Clock::now())) continue;
      pmix_.take_end(pid, status);
      const auto rank = guards_.take_end(pid);
      if (!rank) continue;
      meetings_.remove(*rank);
      guard_was_killed_ |= WIFSIGNALED(status);
      // hvdrun may not know the guard yet.  Then only this message reports that the guard has ended.
      if (status != 0) tell(PmixMessage{.kind = PmixMessage::Kind::guard_ended, .rank = *rank, .status = status});
    }
    if (guard_was_killed_) kill_orphans();
  }

  /// A guard stops only by SIGSTOP from outside.  Until it goes on, no process learns that its rank has ended.
  void continue_stopped() {
    if (!guards_.stopped().are_any()) return;
    for (const pid_t pid : guards_.stopped().overdue(Clock::now())) {
      const int rank = guards_.rank_of(pid);
      if (rank < 0 && pid != pmix_.pid()) continue;  // a process of a killed guard, which is killed too
      ::kill(pid, SIGCONT);
      tell(PmixMessage{.kind = PmixMessage::Kind::continued, .rank = rank, .status = pid});
    }
  }

  /// Kills the processes of killed guards, which this process has adopted.
  void kill_orphans() {
    std::vector<pid_t> spared = guards_.living();
    if (pmix_.pid() != 0) spared.push_back(pmix_.pid());
    kill_descendants_once(nullptr, spared);
  }

  /// Lets the guard start its rank.  @param pmix  variables from the PMIx server; nothing: there is no server
  void give_environment(std::size_t local_rank, const std::optional<std::string>& pmix) {
    const int rank = guards_.rank(local_rank);
    std::string variables;
    if (!elastic_)
      variables = mpi_variables(*manifest_, rank, static_cast<int>(local_rank), static_cast<int>(guards_.size()));
    variables += pmix ? *pmix : no_mpi(elastic_ ? "an_elastic_job_has_no_MPI" : "hvdrun_has_no_PMIx_server");
    guards_.give_environment(local_rank, variables);
  }

  void give_environments_without_pmix() {
    if (!elastic_)
      tell(PmixMessage{.kind = PmixMessage::Kind::broken, .rank = guards_.rank(0), .data = pmix_.problem()});
    for (std::size_t i = 0; i < guards_.size(); ++i)
      if (guards_.awaits_environment(i)) give_environment(i, std::nullopt);
  }

  // ---- waiting ----
  void wait() {
    // poll() reports an error of standard output if hvdrun, or the shell between hvdrun and this process, has ended.
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}, {cut_off_ ? -1 : STDOUT_FILENO, 0, 0}};
    const Outbox& outbox = hvdrun_.outbox();
    hvdrun_.add_to(fds, !relay_.is_full());
    if (!outbox.is_full()) fds.push_back({relay_.fd(), POLLIN, 0});
    if (!outbox.is_full()) pmix_.add_to(fds);
    meetings_.add_to(fds);
    int patience = -1;
    if (!outbox.empty()) patience = 20;  // the outbox is not empty until hvdrun is reached
    if (kill_at_ || guard_was_killed_) patience = 20;
    if ((pmix_.is_awaited() || guards_.stopped().are_any()) && patience < 0) patience = 1000;
    ::poll(fds.data(), fds.size(), patience);
    if ((fds[1].revents & (POLLERR | POLLHUP)) == 0) return;
    cut_off_ = true;
    // A lost network ends the shell's ssh, but not hvdrun.  The end of hvdrun would end the connection too.
    if (!hvdrun_.spans_networks()) end_alone();
  }

  void end_alone() {
    released_ = true;
    kill_at_ = Clock::now() + last_chance;
    guards_.signal(parent_died_signal());
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == parent_died_signal() || number == SIGHUP) {
        end_alone();
      } else if (number == SIGCONT && guards_.rank_of(static_cast<pid_t>(info.ssi_pid)) >= 0) {
        tell(PmixMessage{.kind = PmixMessage::Kind::continued, .failed = true, .status = ::getpid()});
      } else if (number != SIGCHLD && number != SIGCONT && number != SIGPIPE && number != SIGTSTP) {
        released_ |= number == SIGTERM;  // SIGTERM: hvdrun gives up the job
        guards_.signal(number);
      }
    }
  }

  // ---- hvdrun ----
  void connect() {
    if (hvdrun_.connect() || !hvdrun_.is_trying() || Clock::now() - born_ < first_contact) return;
    std::fprintf(stderr, "hvdrank: %s got no answer from hvdrun at %s within %lld s\n", call_.host.c_str(),
                 call_.addresses.front().c_str(), static_cast<long long>(first_contact.count() / 1000));
    hvdrun_.give_up();
    relay_.hang_up();
  }

  /// Sends the first message to hvdrun.
  void say_hello(int first_rank) {
    wire::Hello h;
    h.protocol = wire::protocol_version;
    h.rank = first_rank;
    h.daemon = true;
    h.pid = ::getpid();
    h.host = call_.host;
    h.local = call_.local;
    h.version = HVD_VERSION;
    h.mono_ns = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
    hvdrun_.send(Type::hello, to_json(h));
  }

  void tell(const PmixMessage& message) { hvdrun_.send(Type::pmix, encode(message)); }

  void exchange() {
    Outbox& outbox = hvdrun_.outbox();
    bool is_left = relay_.turn(outbox);
    if (!hvdrun_.is_there()) return;
    for (hvdrun_.flush(); is_left && !outbox.is_full(); hvdrun_.flush()) is_left = relay_.turn(outbox);
    take_messages();
    if (!hvdrun_.lost_for()) return;
    relay_.hang_up();
    if (cut_off_ && !kill_at_) end_alone();
  }

  void take_messages() {
    while (!relay_.is_full()) {
      auto frame = hvdrun_.receive();
      if (!frame) return;
      const auto type = static_cast<Type>(frame->type);
      if (type == Type::relayed) relay_.hand_out(frame->body);
      if (type == Type::daemon_manifest && !manifest_) start_ranks(frame->body);
      if (type == Type::start_rank && manifest_) start_later(frame->body);
      if (type == Type::release) released_ = true;
      if (type == Type::stop && !call_.local) end_alone();
      if (type == Type::meeting) meetings_.hand_out(frame->body);
      if (type == Type::pmix) pmix_.send(std::move(frame->body));
    }
  }

  void start_ranks(const std::string& body) {
    manifest_ = wire::daemon_manifest_from_json(body);
    if (pmix_.is_running()) return pmix_.begin(body, Clock::now());
    give_environments_without_pmix();
  }

  // ---- PMIx ----
  void take_pmix_events() {
    while (const auto event = pmix_.next(Clock::now())) {
      take(*event);
      if (hvdrun_.outbox().is_full()) return;
    }
  }

  void take(const HostPmix::News& event) {
    switch (event.kind) {
      case HostPmix::News::Kind::environment:
        if (const auto at = guards_.local_rank(event.rank); at && guards_.awaits_environment(*at))
          give_environment(*at, event.text);
        if (!guards_.any_awaits_environment()) pmix_.environments_given();
        return;
      case HostPmix::News::Kind::message:
        return hvdrun_.outbox().add(event.frame);
      case HostPmix::News::Kind::lost:
        if (manifest_) give_environments_without_pmix();  // without a manifest, start_ranks() calls this later
        return;
    }
  }

  const LaunchContext& call_;
  const bool elastic_;
  const bool relays_;      ///< this process relays the guards' messages; on a job's only host, guards connect to hvdrun
  bool released_ = false;  ///< hvdrun will start no more guards
  bool guard_was_killed_ = false;
  bool cut_off_ = false;  ///< standard output is closed
  const Clock::time_point born_ = Clock::now();
  const double born_wall_seconds_ = wall_seconds() - 10;
  std::optional<Clock::time_point> kill_at_;  ///< the remaining guards are killed at this time
  GuardTable guards_;
  MeetingRelay meetings_;
  GuardRelay relay_;
  HostPmix pmix_;
  HvdrunConnection hvdrun_;
  Fd signals_;
  std::optional<wire::DaemonManifest> manifest_;
};

}  // namespace

int run_host_daemon(const LaunchContext& call, const std::vector<int>& ranks, const std::string& mpi_folder,
                    bool elastic) {
  if (!follow_parent()) return 1;
  int code = 0;
  try {
    code = HostDaemon(call, ranks, mpi_folder, elastic).run();
  } catch (const Error& e) {
    std::fprintf(stderr, "hvdrank: host daemon: %s\n", e.what());
    kill_descendants(clean_up_limit);
    code = static_cast<int>(e.code);
  }
  if (!call.folder.empty()) remove_own_folder(call.folder);
  ::_exit(code);  // without exit handlers: libpmix's threads may still run
}

}  // namespace hvd::rank
