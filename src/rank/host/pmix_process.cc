#include "rank/host/pmix_process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "pmix/gate.h"
#include "pmix/library_paths.h"
#include "pmix/server.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/messages/pmix_message.h"

namespace hvd::rank {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using wire::PmixMessage;
using wire::Type;

constexpr auto last_words_limit = milliseconds(200);

std::string text_of(const Error& e) { return std::string(e.what()) + (e.hint.empty() ? "" : "\n" + e.hint); }

/// Runs the PMIx server in the child, and talks to the host daemon.
class PmixChild {
 public:
  PmixChild(Fd socket, const PmixStart& start) : start_(start), connection_(wire::connection_over(std::move(socket))) {}

  /// Returns the process's exit code.
  int run() {
    try {
      server_ = std::make_unique<pmix::Server>(pmix::open_library(pmix::library_paths(start_.mpi_folder)),
                                               start_.folder, start_.host, ::getppid());
      while (!released_ && !connection_->lost_for()) turn();
      take_events();
      return say_all();
    } catch (const Error& e) {
      outbox_.add(Type::pmix, encode(PmixMessage{
                                  .kind = PmixMessage::Kind::broken, .rank = start_.first_rank, .data = text_of(e)}));
      say_all();
      return static_cast<int>(e.code);
    }
  }

 private:
  void turn() {
    pollfd fds[] = {{connection_->fd(), POLLIN, 0}, {server_->fd(), POLLIN, 0}};
    ::poll(fds, 2, outbox_.empty() ? -1 : 20);
    while (const auto frame = connection_->receive()) take(*frame);
    take_events();
    outbox_.flush(*connection_);
  }

  /// Sends the waiting messages, until the daemon's end of the connection is lost.  Returns the exit code.
  int say_all() {
    for (outbox_.flush(*connection_); !outbox_.empty() && !connection_->lost_for(); outbox_.flush(*connection_)) {
      pollfd on{connection_->fd(), POLLIN, 0};
      ::poll(&on, 1, 20);
      while (connection_->receive()) {}
    }
    return outbox_.empty() ? 0 : static_cast<int>(Code::peer_lost);
  }

  void take(const wire::Frame& frame) {
    const auto type = static_cast<Type>(frame.type);
    if (type == Type::daemon_manifest) add_job(wire::daemon_manifest_from_json(frame.body));
    if (type == Type::pmix) take_pmix(wire::decode_pmix_message(frame.body));
    released_ |= type == Type::release;
  }

  void add_job(const wire::DaemonManifest& manifest) {
    pmix::PmixJob job;
    job.name = manifest.pmix_namespace;
    for (const auto& host : manifest.hosts) job.hosts.push_back({host.name, host.ranks});
    const auto is_ours = [this](const auto& host) { return host.ranks[0] == start_.first_rank; };
    const auto here = std::find_if(manifest.hosts.begin(), manifest.hosts.end(), is_ours);
    if (here == manifest.hosts.end()) throw Error(Code::internal, "daemon manifest", "does not name this host");
    job.host = static_cast<int>(here - manifest.hosts.begin());
    job.folder = start_.folder;
    job.oversubscribed = manifest.oversubscribed;
    job.programs = manifest.programs;
    server_->add(job);
    is_only_host_ = manifest.hosts.size() == 1;
    num_local_ = here->ranks.size();
    for (const std::int32_t rank : here->ranks) {
      std::string body(reinterpret_cast<const char*>(&rank), sizeof rank);
      for (const std::string& line : server_->environment(rank)) body += line + '\0';
      outbox_.add(Type::pmix_environment, std::move(body));
    }
  }

  void take_events() {
    using Kind = pmix::Event::Kind;
    while (auto event = server_->next()) {
      PmixMessage m{.failed = event->failed, .rank = event->rank, .status = event->status, .token = event->token};
      m.ranks.assign(event->ranks.begin(), event->ranks.end());
      m.data = std::move(event->data);
      switch (event->kind) {
        case Kind::connected:
          if (++connected_ == num_local_) pmix::shut_listeners();
          continue;
        case Kind::fence:
          if (is_only_host_) {
            server_->finish_fence(event->token, std::move(m.data));
            continue;
          }
          m.kind = PmixMessage::Kind::fence;
          break;
        case Kind::request:
          m.kind = PmixMessage::Kind::request;
          break;
        case Kind::published:
          m.kind = PmixMessage::Kind::published;
          break;
        case Kind::abort:
          m.kind = PmixMessage::Kind::abort;
          break;
        case Kind::spawn:
          m.kind = PmixMessage::Kind::spawn;
          break;
      }
      outbox_.add(Type::pmix, encode(m));
    }
  }

  void take_pmix(PmixMessage m) {
    switch (m.kind) {
      case PmixMessage::Kind::fence_data:
        return server_->finish_fence(m.token, std::move(m.data), m.failed);
      case PmixMessage::Kind::answer:
        return server_->answer(m.token, std::move(m.data), m.failed);
      case PmixMessage::Kind::ask:
        return server_->ask(m.rank, m.token);
      default:
        return;
    }
  }

  const PmixStart& start_;
  std::unique_ptr<wire::Connection> connection_;
  Outbox outbox_;
  std::unique_ptr<pmix::Server> server_;
  bool released_ = false, is_only_host_ = false;
  std::size_t num_local_ = 0, connected_ = 0;  ///< ranks of this host; ranks that have connected to PMIx
};

[[noreturn]] void serve(Fd socket, const PmixStart& start, pid_t daemon) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != daemon) ::_exit(1);
  ::prctl(PR_SET_NAME, "hvdrank-pmix");
  // Without HOME, libpmix reads the user's passwd entry, and 4.2.2 crashes if there is none.  libpmix loads components
  // from folders below HOME.  So the folder must belong to root.
  if (!environment_value("HOME")) ::setenv("HOME", "/", 1);
  int code = static_cast<int>(Code::internal);
  try {
    // Never deleted, because libpmix's threads still run at the end.
    auto* const child = new PmixChild(std::move(socket), start);
    code = child->run();
  } catch (const std::exception&) {}
  ::_exit(code);
}

}  // namespace

PmixProcess::PmixProcess(const PmixStart& start) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  Fd ours(pair[0]), theirs(pair[1]);
  const pid_t daemon = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw Error(Code::unavailable, "fork", errno_text(errno));
  if (pid_ == 0) {
    ours.reset();
    serve(std::move(theirs), start, daemon);
  }
  connection_ = wire::connection_over(std::move(ours));
}

PmixProcess::~PmixProcess() {
  if (status_) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
}

void PmixProcess::send(Type type, std::string body) {
  outbox_.add(type, std::move(body));
  outbox_.flush(*connection_);
}

std::optional<wire::Frame> PmixProcess::receive() {
  outbox_.flush(*connection_);
  return connection_->receive();
}

std::optional<std::string> PmixProcess::end() const {
  if (!status_) return std::nullopt;
  if (WIFSIGNALED(*status_)) return formatted("was killed by signal {}", WTERMSIG(*status_));
  return formatted("ended with exit code {}", WEXITSTATUS(*status_));
}

std::vector<wire::Frame> PmixProcess::last_words() {
  std::vector<wire::Frame> words;
  send(Type::release, {});
  const auto limit = Clock::now() + last_words_limit;
  while (!connection_->lost_for() && Clock::now() < limit) {
    pollfd on{connection_->fd(), POLLIN, 0};
    ::poll(&on, 1, static_cast<int>(last_words_limit.count()));
    while (auto frame = receive()) words.push_back(std::move(*frame));
  }
  return words;
}

}  // namespace hvd::rank
