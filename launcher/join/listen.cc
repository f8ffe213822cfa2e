#include "launcher/join/listen.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/own_folder.h"
#include "base/format.h"
#include "base/process/child.h"
#include "base/text.h"
#include "launcher/job/first_hosts.h"
#include "launcher/job/job.h"
#include "launcher/join/join_server.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/signal_queue.h"
#include "options/variable.h"

namespace hvd::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using Hosts = std::vector<wire::JoinOffer>;
constexpr int turn_ms = 200;
constexpr std::size_t most_names_told = 8;
constexpr rlim_t wanted_files = 16384;  ///< more would let strangers at the port take more memory

long long slots_of(const Hosts& hosts) {
  long long slots = 0;
  for (const wire::JoinOffer& h : hosts) slots += h.slots;
  return slots;
}

std::string told(const Hosts& hosts) {
  std::vector<std::string> names;
  for (const wire::JoinOffer& h : hosts) names.push_back(h.host);
  if (names.size() > most_names_told) names.resize(most_names_told), names.emplace_back("…");
  const std::string counts =
      formatted("{} on {}", count_of(slots_of(hosts), "slot"), count_of(static_cast<long long>(hosts.size()), "host"));
  return names.empty() ? "no host" : counts + " (" + join(names, ", ") + ")";
}

/// True if this machine has the address, and other hosts may reach it.  False if a host came through a forwarder.
bool is_own_address(const std::string& ip) {
  if (ip.starts_with("127.") || ip == "::1") return false;
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(ip.c_str(), "0", &hints, &found) != 0) return false;
  const Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool is_own = fd && ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  return is_own;
}

/// The text of a manifest, hvdrun-manifest(5).  Without hosts it is empty, which HostDiscovery reads as no hosts.
std::string manifest_text(const Hosts& hosts, const std::vector<std::string>& agent) {
  if (hosts.empty()) return "";
  nlohmann::ordered_json manifest{{"version", 1}, {"source", "--listen"}, {"launch_agent", agent}};
  for (const wire::JoinOffer& h : hosts) {
    manifest["hosts"].push_back({{"address", h.host}, {"slots", h.slots}});
    if (is_own_address(h.address)) manifest["launcher_address"] = h.address;
  }
  return manifest.dump();
}

/// The outer hvdrun of --listen, which owns the port.  This process waits for the hosts, and starts a second hvdrun for
/// the job.
class Listening {
 public:
  Listening(const Settings& settings, int port)
      : settings_(settings),
        folder_(place_for_own_folder(), "hvd-join-", ::getpid()),
        server_(port, join_keys(settings), folder_.path() + "/agents"),
        agent_{own_folder() + "/hvdrun", "--pass-script", folder_.path() + "/agents", "{host}"} {
    if (::getrlimit(RLIMIT_NOFILE, &files_) != 0 || files_.rlim_cur >= wanted_files) return;
    const rlimit more{std::min(wanted_files, files_.rlim_max), files_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &more);
  }

  int run(const std::vector<std::string>& args) {
    int code = 128 + SIGTERM;
    try {
      if (const std::optional<int> signal = wait_for_slots())
        code = 128 + *signal;
      else
        code = run_job(args);
    } catch (const Error& e) {
      server_.dismiss_all(static_cast<int>(e.code), "the job did not start: " + printable(e.what()));
      throw;
    }
    server_.dismiss_all(code, code == 0 ? "the job is done" : formatted("the job has ended with exit code {}", code));
    return code;
  }

 private:
  /// Returns the number of a signal that ended the wait; nothing: there are enough slots.
  std::optional<int> wait_for_slots() {
    const int needed = slots_to_begin(settings_);
    const double limit = settings_.number("elastic-timeout");
    say(formatted("waiting up to {:g} s (--elastic-timeout) for {} at port {}", limit, count_of(needed, "slot"),
                  settings_.text("listen")));
    std::string last;
    const auto begin = Clock::now();
    for (auto next = begin;;) {
      server_.turn(signals_.fd(), turn_ms);
      while (const auto number = signals_.next())
        if (ends_job(*number)) {
          say(formatted("told to end (signal {}) while {} of {} had joined", *number, told(server_.hosts()),
                        count_of(needed, "slot")));
          return number;
        }
      const Hosts here = server_.hosts();
      const bool is_enough = slots_of(here) >= needed;
      if (const std::string now = told(here); now != last && (Clock::now() >= next || is_enough)) {
        if (!last.empty() || !here.empty()) say(formatted("joined: {} of {}", now, count_of(needed, "slot")));
        last = now;
        next = Clock::now() + std::chrono::seconds(1);
      }
      if (is_enough) return std::nullopt;
      if (std::chrono::duration<double>(Clock::now() - begin).count() > limit)
        throw Error(Code::timeout, "--listen",
                    formatted("{} joined, and the job needs {}; no more came in {:g} s (--elastic-timeout)", told(here),
                              count_of(needed, "slot"), limit),
                    "do the others run (kubectl get pods), with the same token? give more time with --elastic-timeout");
    }
  }

  int run_job(const std::vector<std::string>& args) {
    write_manifest();
    ChildProgram program{agent_[0], {agent_[0]}};
    program.arguments.insert(program.arguments.end(), args.begin(), args.end());
    program.environment.emplace();
    for (char** entry = environment_block(); *entry; ++entry) program.environment->emplace_back(*entry);
    program.environment->push_back("HVD_JOINED_HOSTS=" + manifest_path());
    program.input = STDIN_FILENO;
    const StartedChild job = start_child(program, [this](const ChildNotes&) { ::setrlimit(RLIMIT_NOFILE, &files_); });
    if (job.failure) throw Error(Code::unavailable, agent_[0], errno_text(job.failure->error));
    const bool is_elastic = settings_.has("min-np") || settings_.has("max-np");
    for (;;) {
      server_.turn(signals_.fd(), turn_ms);
      while (const auto number = signals_.next())
        if (*number != SIGCHLD) ::kill(job.pid, *number);
      if (const std::optional<int> code = status_of(job.pid)) return *code;
      if (is_elastic) {
        renew_manifest();
      } else if (server_.take_leave()) {
        say("a host was told to end, so the job is told too");
        ::kill(job.pid, SIGTERM);
      }
    }
  }

  /// Returns the exit code if the job has ended.  When the job stops, this process stops too, for the shell's job
  /// control.
  static std::optional<int> status_of(pid_t job) {
    int status = 0;
    if (::waitpid(job, &status, WNOHANG | WUNTRACED) != job) {
      reap_orphans({job});
      return std::nullopt;
    }
    if (WIFSTOPPED(status)) {
      ::raise(SIGSTOP);
      return std::nullopt;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  std::string manifest_path() const { return folder_.path() + "/hosts"; }

  /// Replaces the file as a whole: the job reads it at any time.
  void write_manifest() {
    std::string text = manifest_text(server_.hosts(), agent_);
    if (text == written_) return;
    const std::string fresh = folder_.path() + "/hosts.new";
    const Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd || !write_all(fd.get(), text) || ::rename(fresh.c_str(), manifest_path().c_str()) != 0)
      throw Error(Code::unavailable, fresh, errno_text(errno));
    written_ = std::move(text);
  }

  /// Like write_manifest().  After a failure, tells it once and tries again in the next turn.
  void renew_manifest() {
    try {
      write_manifest();
      is_told_ = false;
    } catch (const Error& e) {
      if (!std::exchange(is_told_, true)) say(formatted("the job does not see new hosts yet: {}", e.what()));
    }
  }

  static void say(const std::string& line) { std::fprintf(stderr, "hvdrun: %s\n", printable(line).c_str()); }

  const Settings& settings_;
  SignalQueue signals_;
  OwnFolder folder_;
  JoinServer server_;
  const std::vector<std::string> agent_;
  std::string written_;
  rlimit files_{};        ///< as at the start: the job gets it back
  bool is_told_ = false;  ///< that the manifest cannot be written
};

void refuse_other_hosts(const Settings& settings) {
  for (const char* id : {"hosts", "hostfile", "manifest", "host-discovery-script"})
    if (const Setting* s = settings.find(id); s && !s->value.empty())
      throw Error(Code::usage, "--listen", "the hosts join, and " + s->where + " names others", "keep one of them");
  if (settings.text("launcher") == "mpirun")
    throw Error(Code::usage, "--listen", "mpirun cannot reach hosts that join", "leave out --launcher mpirun");
  if (!settings.has("num-proc") && !settings.has("min-np"))
    throw Error(Code::usage, "--listen", "for how many ranks does the job wait?", "add -np, or --min-np");
}

}  // namespace

std::optional<int> listen_for_hosts(const std::vector<std::string>& args, Settings& settings) {
  if (const std::string manifest(options::text_of("HVD_JOINED_HOSTS")); !manifest.empty()) {
    ::unsetenv("HVD_JOINED_HOSTS");
    settings.set(option("manifest"), {manifest, SettingSource::flag, "--listen"});
    return std::nullopt;
  }
  refuse_other_hosts(settings);
  sweep_own_folders(place_for_own_folder(), "hvd-join-");
  return Listening(settings, settings.integer("listen").value_or(0)).run(args);
}

}  // namespace hvd::launcher
