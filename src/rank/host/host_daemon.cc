#include "rank/host/host_daemon.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/leftovers.h"
#include "base/load.h"
#include "base/process/process.h"
#include "base/text.h"
#include "rank/guard/guard.h"
#include "rank/guard/guard_signals.h"
#include "rank/guard/time_limits.h"
#include "rank/host/guard_relay.h"
#include "rank/host/meeting_desk.h"
#include "rank/host/pmix_process.h"
#include "rank/streams/outbox.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/messages/hello.h"
#include "wire/messages/pmix_message.h"

namespace hvd::rank {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using wire::PmixMessage;
using wire::Type;

constexpr double longest_pmix_start_ms = 20'000;  ///< times the load; it takes 5 ms on an idle machine

struct GuardProcess {
  int rank = -1;
  pid_t pid = 0;   ///< 0: has ended
  Fd environment;  ///< its rank's variables go in here, once
};

/// What an outer launcher told the processes it started is not for our ranks.  Where that launcher's software lies is.
void forget_outer_launcher() {
  std::vector<std::string> names;
  for (char** entry = environment_block(); *entry; ++entry) {
    const std::string_view line = *entry, name = line.substr(0, line.find('='));
    if (name.ends_with("_PREFIX") || (name.starts_with("OMPI_MCA_") && name != "OMPI_MCA_ess")) continue;
    for (const char* prefix : {"PMIX_", "PMI_", "OMPI_", "OPAL_", "ORTE_", "PRTE_"})
      if (name.starts_with(prefix)) names.emplace_back(name);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

class HostDaemon {
 public:
  HostDaemon(const LaunchContext& call, const std::vector<int>& ranks, const std::string& mpi_folder, bool elastic)
      : call_(call), elastic_(elastic), relays_(!call.addresses.front().starts_with("unix://")) {
    const sigset_t set = awaited_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    become_subreaper();
    forget_outer_launcher();
    say_hello(ranks.front());
    if (!elastic) start_pmix(mpi_folder, ranks.front());  // most of a start's time: it begins first
    for (const int rank : ranks) start_guard(rank);
    signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    for (const std::string& address : call.addresses)
      candidates_.push_back(wire::connect({address, call.server_key}, call.client));
    connect();
    if (connection_) outbox_.flush(*connection_);
  }

  int run() {
    while (!is_over()) {
      wait();
      take_signals();
      reap();
      if (!connection_) connect();
      take_pmix_frames();
      for (std::string& message : desk_.turn()) outbox_.add(Type::meeting, std::move(message));
      exchange();
      if (kill_at_ && Clock::now() > *kill_at_) signal_guards(SIGKILL);
    }
    if (pmix_)
      for (const wire::Frame& frame : pmix_->last_words()) take_pmix_frame(frame);
    exchange();
    pmix_.reset();
    const bool clean = kill_descendants(clean_up_limit);
    // In an elastic job a daemon before this one may have been killed with all of its ranks: nobody has looked since.
    if (elastic_) remove_files_of_gone_ranks();
    if (guard_was_killed_) remove_shared_memory_leftovers(born_wall_seconds_);
    if (!connection_) return static_cast<int>(Code::unavailable);
    return clean ? 0 : 1;
  }

 private:
  bool is_over() const {
    if (std::any_of(guards_.begin(), guards_.end(), [](const GuardProcess& g) { return g.pid != 0; })) return false;
    const bool has_time = !kill_at_ || Clock::now() < *kill_at_;
    if (relays_ && has_time && is_heard() && !(relay_.is_empty() && outbox_.empty())) return false;  // last words
    if (!elastic_ || released_ || cut_off_) return true;
    // A connection that is lost does not come back: hvdrun knows this daemon no more, and starts another one.
    return connection_ ? connection_->lost_for().has_value() : candidates_.empty();
  }

  // ---- guards ----
  void start_guard(int rank) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      throw Error(Code::unavailable, "socketpair", errno_text(errno));
    Fd ours(pair[0]);
    const Fd theirs(pair[1]), seat = desk_.add(rank), channel = relays_ ? relay_.add(rank) : Fd();
    const pid_t daemon = ::getpid(), pid = ::fork();
    if (pid < 0) throw Error(Code::unavailable, "fork", errno_text(errno));
    if (pid == 0) {
      keep_only({theirs.get(), seat.get(), channel.get()});
      LaunchContext call = call_;
      call.rank = rank;
      call.environment_fd = theirs.get();
      call.meeting_fd = seat.get();
      call.channel_fd = channel.get();
      ::prctl(PR_SET_PDEATHSIG, parent_died_signal());
      if (::getppid() != daemon) ::_exit(1);  // it died before the line above
      ::setpgid(0, 0);
      become_subreaper();
      ::_exit(run_guard(call));
    }
    guards_.push_back({rank, pid, std::move(ours)});
  }

  /// In a guard: what the daemon has open is not its own, and would stay open in it.  Of the objects that hold it
  /// nothing is run or freed any more: the guard ends with _exit().
  static void keep_only(std::array<int, 3> kept) {
    std::sort(kept.begin(), kept.end());
    unsigned from = 3;
    bool all = true;
    for (const int fd : kept) {
      if (fd < 0) continue;
      if (static_cast<unsigned>(fd) > from) all &= ::close_range(from, static_cast<unsigned>(fd) - 1, 0) == 0;
      from = static_cast<unsigned>(fd) + 1;
    }
    if (::close_range(from, ~0u, 0) == 0 && all) return;
    std::vector<int> open;  // before Linux 5.9
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      if (const auto fd = to_integer(entry.path().filename().string())) open.push_back(static_cast<int>(*fd));
    for (const int fd : open)
      if (fd > 2 && std::find(kept.begin(), kept.end(), fd) == kept.end()) ::close(fd);
  }

  /// One more than there were at first, for the worker of that number.
  void start_later(const std::string& body) {
    std::int32_t rank = -1;
    if (body.size() != sizeof rank || !elastic_ || released_) return;
    std::memcpy(&rank, body.data(), sizeof rank);
    start_guard(rank);
    give_environment(guards_.back(), static_cast<int>(guards_.size()) - 1);
  }

  void signal_guards(int number) {
    for (const GuardProcess& g : guards_)
      if (g.pid != 0) ::kill(g.pid, number);
  }

  void reap() {
    int status = 0;
    bool killed = false;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pmix_ && pmix_->pid() == pid) pmix_->set_ended(status);
      for (GuardProcess& g : guards_)
        if (g.pid == pid) {
          g.pid = 0;
          g.environment.reset();
          desk_.remove(g.rank);
          killed |= WIFSIGNALED(status);
          if (status != 0) tell_of_end(g.rank, status);
        }
    }
    guard_was_killed_ |= killed;
    if (killed || guard_was_killed_) kill_orphans();
  }

  /// One that had not come yet is missed by nobody else.
  void tell_of_end(int rank, int status) {
    outbox_.add(Type::pmix,
                encode(PmixMessage{.kind = PmixMessage::Kind::guard_ended, .rank = rank, .status = status}));
  }

  /// What a guard that was killed had below it is below us now.
  void kill_orphans() {
    std::vector<pid_t> spared;
    for (const GuardProcess& g : guards_)
      if (g.pid != 0) spared.push_back(g.pid);
    if (pmix_) spared.push_back(pmix_->pid());
    kill_descendants_once(nullptr, spared);
  }

  // ---- waiting ----
  void wait() {
    // Nobody reads our words any more: hvdrun, or the shell between us and it, has gone.
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}, {cut_off_ ? -1 : STDOUT_FILENO, 0, 0}};
    if (connection_ && !relay_.is_full()) fds.push_back({connection_->fd(), POLLIN, 0});
    if (!outbox_.is_full()) fds.push_back({relay_.fd(), POLLIN, 0});
    for (const auto& candidate : candidates_) fds.push_back({candidate->fd(), POLLIN, 0});
    if (pmix_ && !outbox_.is_full()) fds.push_back({pmix_->fd(), POLLIN, 0});
    desk_.add_to(fds);
    int patience = -1;
    if (!outbox_.empty()) patience = 20;  // as it is until hvdrun is reached
    if (kill_at_ || guard_was_killed_) patience = 20;
    if (pmix_due_ && patience < 0) patience = 1000;
    ::poll(fds.data(), fds.size(), patience);
    if ((fds[1].revents & (POLLERR | POLLHUP)) != 0) {
      cut_off_ = true;
      end_alone();
    }
  }

  void end_alone() {
    released_ = true;
    kill_at_ = Clock::now() + last_chance;
    signal_guards(parent_died_signal());
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == parent_died_signal() || number == SIGHUP) {
        end_alone();
      } else if (number != SIGCHLD && number != SIGCONT && number != SIGPIPE && number != SIGTSTP) {
        released_ |= number == SIGTERM;  // hvdrun gives up
        signal_guards(number);
      }
    }
  }

  // ---- hvdrun ----
  void connect() {
    for (auto& candidate : candidates_)
      if (candidate->connected()) {
        connection_ = std::move(candidate);
        candidates_.clear();
        return;
      }
    if (candidates_.empty() || Clock::now() - born_ < first_contact) return;
    std::fprintf(stderr, "hvdrank: %s got no answer from hvdrun at %s within %lld s\n", call_.host.c_str(),
                 call_.addresses.front().c_str(), static_cast<long long>(first_contact.count() / 1000));
    candidates_.clear();
    relay_.hang_up();
  }

  /// hvdrun reads what is sent.
  bool is_heard() const { return connection_ ? !connection_->lost_for() : !candidates_.empty(); }

  /// The first message of all.
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
    outbox_.add(Type::hello, to_json(h));
  }

  void exchange() {
    bool is_left = relay_.turn(outbox_);
    if (!connection_) return;
    for (outbox_.flush(*connection_); is_left && !outbox_.is_full(); outbox_.flush(*connection_))
      is_left = relay_.turn(outbox_);
    take_messages();
    if (connection_->lost_for()) relay_.hang_up();
  }

  void take_messages() {
    while (!relay_.is_full()) {
      auto frame = connection_->receive();
      if (!frame) return;
      const auto type = static_cast<Type>(frame->type);
      if (type == Type::relayed) relay_.hand_out(frame->body);
      if (type == Type::daemon_manifest && !manifest_) start_ranks(frame->body);
      if (type == Type::start_rank && manifest_) start_later(frame->body);
      if (type == Type::release) released_ = true;
      if (type == Type::meeting) desk_.hand_out(frame->body);
      if (type == Type::pmix && pmix_) pmix_->send(Type::pmix, std::move(frame->body));
    }
  }

  void start_ranks(const std::string& body) {
    manifest_ = wire::daemon_manifest_from_json(body);
    if (pmix_) {
      pmix_->send(Type::daemon_manifest, body);
      pmix_due_ = Clock::now() + milliseconds(static_cast<int>(longest_pmix_start_ms * load_factor()));
      return;
    }
    if (!elastic_) tell_of_no_pmix();
    give_environments({});
  }

  /// To the guards that have none yet.  @param pmix  lines of libpmix's, or nothing
  void give_environments(std::optional<std::string> pmix, std::optional<int> only_rank = {}) {
    for (std::size_t i = 0; i < guards_.size(); ++i)
      if (guards_[i].environment && only_rank.value_or(guards_[i].rank) == guards_[i].rank)
        give_environment(guards_[i], static_cast<int>(i), pmix);
  }

  void give_environment(GuardProcess& g, int local_rank, const std::optional<std::string>& pmix = {}) {
    std::vector<std::string> lines;
    if (!elastic_) lines = rank_variables(local_rank, g.rank);
    if (!pmix)  // Open MPI 5 would make each process a world of its own: MPI_Init fails with these words instead
      lines.emplace_back(elastic_ ? "OMPI_MCA_pml=an_elastic_job_has_no_MPI"
                                  : "OMPI_MCA_pml=hvdrun_has_no_PMIx_server");
    std::string text;
    for (const std::string& line : lines) text += line + '\0';
    text += pmix.value_or("");
    if (g.pid != 0) write_all(g.environment.get(), text);
    g.environment.reset();  // its end is the end of the text
  }

  /// What mpirun says to its ranks besides PMIx, and scripts read.
  std::vector<std::string> rank_variables(int local_rank, int rank) const {
    std::size_t size = 0;
    for (const auto& host : manifest_->hosts) size += host.ranks.size();
    const std::string all = std::to_string(size), here = std::to_string(guards_.size());
    std::vector<std::string> lines{"OMPI_COMM_WORLD_SIZE=" + all, "OMPI_UNIVERSE_SIZE=" + all,
                                   "OMPI_COMM_WORLD_LOCAL_SIZE=" + here, "OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
                                   "OMPI_COMM_WORLD_LOCAL_RANK=" + std::to_string(local_rank),
                                   "OMPI_COMM_WORLD_NODE_RANK=" + std::to_string(local_rank),
                                   // Without these two, 4.1 makes each process a world of its own, in silence.
                                   "OMPI_MCA_schizo=ompi", "OMPI_MCA_ess=^singleton"};
    if (manifest_->oversubscribed) lines.emplace_back("OMPI_MCA_mpi_oversubscribe=1");
    return lines;
  }

  static std::string folder() {
    const char* const temporary = environment_value("TMPDIR");
    return temporary && *temporary == '/' ? temporary : "/tmp";
  }

  // ---- PMIx ----
  void start_pmix(const std::string& mpi_folder, int first_rank) {
    try {
      pmix_ = std::make_unique<PmixProcess>(
          PmixStart{.mpi_folder = mpi_folder, .folder = folder(), .host = call_.host, .first_rank = first_rank});
    } catch (const Error& e) { pmix_problem_ = e.what(); }
  }

  void take_pmix_frames() {
    if (!pmix_) return;
    while (const auto frame = pmix_->receive()) {
      take_pmix_frame(*frame);
      if (outbox_.is_full()) return;
    }
    const bool is_late = pmix_due_ && Clock::now() > *pmix_due_;
    if (const auto end = pmix_->end(); end || is_late)
      lose_pmix(end ? "its server " + *end : "its server does not answer");
  }

  void take_pmix_frame(const wire::Frame& frame) {
    const auto type = static_cast<Type>(frame.type);
    std::int32_t rank = -1;
    if (type == Type::pmix_environment && frame.body.size() >= sizeof rank) {
      std::memcpy(&rank, frame.body.data(), sizeof rank);
      give_environments(frame.body.substr(sizeof rank), rank);
      if (std::none_of(guards_.begin(), guards_.end(), [](const GuardProcess& g) { return bool(g.environment); }))
        pmix_due_.reset();
    }
    if (type != Type::pmix) return;
    if (const auto m = wire::decode_pmix_message(frame.body); m.kind == PmixMessage::Kind::broken)
      pmix_problem_ = m.data;
    else
      outbox_.add(frame);
  }

  /// Ranks that have not started do so without it.
  void lose_pmix(const std::string& how) {
    if (pmix_problem_.empty()) pmix_problem_ = "libpmix: " + how;
    pmix_.reset();
    pmix_due_.reset();
    if (!manifest_) return;  // it is told with the manifest
    tell_of_no_pmix();
    give_environments({});
  }

  void tell_of_no_pmix() {
    outbox_.add(
        Type::pmix,
        encode(PmixMessage{.kind = PmixMessage::Kind::broken, .rank = guards_.front().rank, .data = pmix_problem_}));
  }

  const LaunchContext& call_;
  const bool elastic_;
  const bool relays_;      ///< the guards speak through us; on a job's only host they have its socket
  bool released_ = false;  ///< elastic: no more guards will be started
  const Clock::time_point born_ = Clock::now();
  const double born_wall_seconds_ = wall_seconds() - 10;
  std::vector<GuardProcess> guards_;  ///< by local rank
  MeetingDesk desk_;
  GuardRelay relay_;
  Fd signals_;
  std::vector<std::unique_ptr<wire::Connection>> candidates_;
  std::unique_ptr<wire::Connection> connection_;
  Outbox outbox_;
  std::optional<wire::DaemonManifest> manifest_;
  std::unique_ptr<PmixProcess> pmix_;          ///< null: it has ended, or the job is elastic
  std::string pmix_problem_;                   ///< why it has ended
  std::optional<Clock::time_point> pmix_due_;  ///< set: ranks wait for its part of their environment
  bool guard_was_killed_ = false;
  bool cut_off_ = false;
  std::optional<Clock::time_point> kill_at_;
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
  ::_exit(code);  // what libraries do at exit() is not for libpmix's threads, which still run
}

}  // namespace hvd::rank
