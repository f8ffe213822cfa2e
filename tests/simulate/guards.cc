/// Measures the time that hvdrun needs to reach very many ranks: hvd-guards [RANKS [RANKS_PER_HOST [PAYLOAD_MIB]]]
/// (1024 8 10)
///
/// One process is hvdrun: the real channel (TCP, encrypted), the real session and daemon links. A few other processes
/// hold the host daemons' real connections. Each daemon says hello, takes its manifest, and passes on its guards'
/// messages: hello, the receipt of the manifest and, one on each host, of the payload. Time runs from the first hello
/// until hvdrun knows that the last rank runs. Exit code 1 if not all is delivered within a minute, or if memory is not
/// bounded.
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "launcher/control/session.h"
#include "wire/channel/relayed_frame.h"
#include "wire/messages/hello.h"
#include "wire/messages/payload_ready.h"

namespace {

using namespace hvd;
using wire::Type;
using Clock = std::chrono::steady_clock;

constexpr int processes = 4;
constexpr auto limit = std::chrono::seconds(60);
constexpr std::size_t most_growth_bytes = 400u << 20;  // 8 payloads of 10 MiB in transit, connections' buffers

std::uint16_t number(Type type) { return static_cast<std::uint16_t>(type); }

std::size_t resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return static_cast<std::size_t>(resident) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A host's daemon with its guards.
struct Host {
  std::unique_ptr<wire::Connection> connection;
  int first = 0, ranks = 0;  ///< the first of its ranks, and their number
  int said = -1;             ///< the number of hellos; the first is the daemon's own
  int running = 0;           ///< the number of guards that have their manifest
  bool has_manifest = false, wants_payload = true;
  std::size_t payload_bytes = 0;
  std::vector<wire::Frame> queue{};  ///< frames that the channel did not accept yet
};

void say(Host& h, const wire::Frame& frame) {
  if (!h.queue.empty() || !h.connection->send(frame)) h.queue.push_back(frame);
}

void take_guards_frame(Host& h, std::uint32_t rank, const wire::Frame& frame, std::size_t whole) {
  if (frame.type == number(Type::ping)) {
    say(h, wire::relayed(rank, {number(Type::pong), frame.body + frame.body}));
  } else if (frame.type == number(Type::manifest)) {
    ++h.running;
    if (!wire::manifest_from_json(frame.body).payload.deliver)
      say(h, wire::relayed(rank, {number(Type::started), to_json(wire::StartReport{1, {0}, 1, "", "", ""})}));
  } else if (frame.type == number(Type::payload)) {
    h.payload_bytes += frame.body.size();
    if (!frame.body.empty()) return;
    h.wants_payload = h.payload_bytes != whole;
    say(h, wire::relayed(rank, {number(Type::payload_ready), to_json(wire::PayloadReady{"/p"})}));
    say(h, wire::relayed(rank, {number(Type::started), to_json(wire::StartReport{1, {0}, 1, "", "", ""})}));
  }
}

/// Takes the frames that have arrived. Returns true when all its ranks run.
bool serve(Host& h, std::size_t whole) {
  while (!h.queue.empty() && h.connection->send(h.queue.front())) h.queue.erase(h.queue.begin());
  for (; h.said < h.ranks && h.queue.empty(); ++h.said) {
    wire::Hello hello;
    hello.host = "m", hello.pid = 1, hello.daemon = h.said < 0;
    hello.rank = h.first + std::max(0, h.said);
    const wire::Frame frame{number(Type::hello), to_json(hello)};
    say(h, hello.daemon ? frame : wire::relayed(static_cast<std::uint32_t>(hello.rank), frame));
  }
  while (const auto frame = h.connection->receive()) {
    if (frame->type == number(Type::daemon_manifest))
      h.has_manifest = !wire::daemon_manifest_from_json(frame->body).hosts.empty();
    if (frame->type != number(Type::relayed)) continue;
    const auto inner = wire::from_relayed(frame->body);
    take_guards_frame(h, inner->rank, inner->frame, whole);
  }
  return h.has_manifest && h.running == h.ranks && !h.wants_payload && h.queue.empty();
}

/// Whether the process at the other end has closed the pipe.
bool is_closed(int pipe_end) {
  pollfd wait{pipe_end, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1 && (wait.revents & POLLHUP) != 0;
}

/// Runs one process of hosts. Its exit code is 0 once all its ranks have started, and hvdrun has closed @p over.  Until
/// then no daemon vanishes, and the last frames can leave.
int be_hosts(const wire::Endpoint& endpoint, const wire::KeyPair& keys, int first, int count, int per_host, int ranks,
             std::size_t whole, int over) {
  std::vector<Host> hosts(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    Host& h = hosts[static_cast<std::size_t>(i)];
    h.connection = wire::connect(endpoint, keys);
    h.first = (first + i) * per_host;
    h.ranks = std::min(per_host, ranks - h.first);
  }
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    int done = 0;
    for (Host& h : hosts) done += serve(h, whole);
    if (done == count && is_closed(over)) std::_Exit(0);
    ::poll(nullptr, 0, 2);
  }
  std::_Exit(1);
}

struct Outcome {
  double seconds = 0;
  bool complete = false;
};

/// @param running  the number of ranks that have reported their start
/// @param over  to be closed when all ranks have
Outcome deliver(launcher::Session& session, std::size_t ranks, const std::size_t& running,
                const std::vector<pid_t>& children, int over) {
  std::optional<Clock::time_point> begin;
  const auto end = Clock::now() + limit;
  std::size_t gone = 0;
  while (Clock::now() < end) {
    pollfd wait{session.fd(), POLLIN, 0};
    ::poll(&wait, 1, 5);
    session.pump({});
    session.tick();
    if (!begin && session.num_in_stage(launcher::RankStage::absent) < ranks) begin = Clock::now();
    if (running == ranks) break;
  }
  ::close(over);
  Outcome outcome;
  outcome.seconds = begin ? std::chrono::duration<double>(Clock::now() - *begin).count() : 0;
  outcome.complete = true;
  while (gone < children.size() && Clock::now() < end) {  // the last payloads are still in transit
    session.pump({});
    int status = 0;
    if (const pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0) {
      ++gone;
      outcome.complete = outcome.complete && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    ::poll(nullptr, 0, 2);
  }
  outcome.complete = outcome.complete && gone == children.size();
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1024, per_host = argc > 2 ? std::atoi(argv[2]) : 8;
  const std::size_t whole = static_cast<std::size_t>(argc > 3 ? std::atoi(argv[3]) : 10) << 20;
  const int hosts = (ranks + per_host - 1) / std::max(1, per_host);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  const wire::KeyPair server = wire::KeyPair::generate(), client = wire::KeyPair::generate();
  int address[2];
  if (hosts < processes || per_host < 1 || ::pipe(address) != 0) return 2;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {  // before this process has threads
    const pid_t pid = ::fork();
    if (pid == 0) {
      char text[128] = {};
      ::close(address[1]);
      if (::read(address[0], text, sizeof text) <= 0) std::_Exit(1);
      const int first = hosts * p / processes, next = hosts * (p + 1) / processes;
      be_hosts({text, server.public_key}, client, first, next - first, per_host, ranks, whole, address[0]);
    }
    children.push_back(pid);
  }
  std::vector<wire::RankManifest> manifests(static_cast<std::size_t>(ranks));
  wire::DaemonManifest job;
  for (int r = 0; r < ranks; ++r) {
    wire::RankManifest& m = manifests[static_cast<std::size_t>(r)];
    m.rank = r, m.size = ranks, m.local_rank = r % per_host, m.local_size = per_host;
    m.host = "host" + std::to_string(r / per_host);
    m.payload.kind = wire::PayloadKind::pickle;
    for (int i = 0; i < 40; ++i) m.env["VARIABLE_" + std::to_string(i)] = std::string(100, 'x');
    if (m.local_rank == 0) job.hosts.push_back({m.host, {}});
    job.hosts.back().ranks.push_back(r);
  }
  std::size_t running = 0;
  const launcher::EventSink events = [&running](const launcher::JobEvent& event) {
    running += std::holds_alternative<launcher::RankStarted>(event);
  };
  launcher::Session session(wire::listen({"tcp://127.0.0.1:*"}, server, client.public_key), manifests,
                            launcher::PayloadDelivery(std::string(whole, 'p'), "/p"), events);
  session.serve(job);
  const std::size_t before = resident_bytes();
  char text[128] = {};
  std::snprintf(text, sizeof text, "%s", session.addresses().at(0).c_str());
  for (int p = 0; p < processes; ++p)
    if (::write(address[1], text, sizeof text) != sizeof text) return 2;
  const Outcome outcome = deliver(session, static_cast<std::size_t>(ranks), running, children, address[1]);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const std::size_t growth = static_cast<std::size_t>(usage.ru_maxrss) * 1024 - before;
  std::printf(
      "%d ranks on %d hosts, payload %zu MiB a host: %.2f s, hvdrun's memory grew by %zu MiB, %.2f s of processor\n",
      ranks, hosts, whole >> 20, outcome.seconds, growth >> 20,
      static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
          static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
  if (!outcome.complete) std::printf("not all ranks were served\n");
  if (growth > most_growth_bytes) std::printf("that is more than %zu MiB\n", most_growth_bytes >> 20);
  return !outcome.complete || growth > most_growth_bytes;
}
