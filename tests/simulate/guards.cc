/// How long hvdrun needs to reach very many guards: hvd-guards [GUARDS [GUARDS_PER_HOST [PAYLOAD_MIB]]]  (1024 8 10)
///
/// One process is hvdrun: the real channel (TCP, encrypted) and the real session.  A few others hold the guards' real
/// connections, say hello, take manifest and, one on each host, the payload.  Time runs from the first hello until the
/// last guard has its manifest.  Exit code 1 where not all is delivered within a minute, or memory is not bounded.
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "launcher/control/session.h"
#include "wire/hello.h"
#include "wire/payload_ready.h"

namespace {

using namespace hvd;
using wire::Type;
using Clock = std::chrono::steady_clock;

constexpr int processes = 4;
constexpr auto limit = std::chrono::seconds(60);
constexpr std::size_t most_growth_bytes = 400u << 20;  // 8 payloads of 10 MiB under way, 1024 connections' buffers

std::uint16_t number(Type type) { return static_cast<std::uint16_t>(type); }

std::size_t resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return static_cast<std::size_t>(resident) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

struct Guard {
  std::unique_ptr<wire::Connection> connection;
  int rank = 0;
  bool greeted = false, has_manifest = false, wants_payload = false;
  std::size_t payload_bytes = 0;
};

/// Takes what has come.  True once the guard has all it needs.
bool serve(Guard& g, std::size_t whole) {
  if (!g.greeted) {
    wire::Hello hello;
    hello.rank = g.rank, hello.host = "m", hello.pid = 1;
    g.greeted = g.connection->send({number(Type::hello), to_json(hello)});
  }
  while (const auto frame = g.connection->receive()) {
    if (frame->type == number(Type::ping)) {
      g.connection->send({number(Type::pong), frame->body + frame->body});
    } else if (frame->type == number(Type::manifest)) {
      g.has_manifest = true;
      g.wants_payload = wire::manifest_from_json(frame->body).payload.deliver;
    } else if (frame->type == number(Type::payload)) {
      g.payload_bytes += frame->body.size();
      if (frame->body.empty()) {
        g.wants_payload = g.payload_bytes != whole;
        g.connection->send({number(Type::payload_ready), to_json(wire::PayloadReady{"/p"})});
      }
    }
  }
  return g.has_manifest && !g.wants_payload;
}

/// One process of guards: 0 when all have come through.
int be_guards(const wire::Endpoint& endpoint, const wire::KeyPair& keys, int first, int count, std::size_t whole) {
  std::vector<Guard> guards(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    guards[static_cast<std::size_t>(i)].connection = wire::connect(endpoint, keys);
    guards[static_cast<std::size_t>(i)].rank = first + i;
  }
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    int done = 0;
    for (Guard& g : guards) done += serve(g, whole);
    if (done == count) {
      ::sleep(1);  // what was sent last shall leave, and hvdrun shall see nobody vanish meanwhile
      std::_Exit(0);
    }
    ::poll(nullptr, 0, 2);
  }
  std::_Exit(1);
}

struct Outcome {
  double seconds = 0;
  bool complete = false;
};

Outcome deliver(launcher::Session& session, std::size_t guards, const std::vector<pid_t>& children) {
  std::optional<Clock::time_point> begin;
  const auto end = Clock::now() + limit;
  std::size_t gone = 0;
  while (Clock::now() < end) {
    pollfd wait{session.fd(), POLLIN, 0};
    ::poll(&wait, 1, 5);
    session.pump({});
    if (!begin && session.in_stage(launcher::RankStage::absent).size() < guards) begin = Clock::now();
    if (session.in_stage(launcher::RankStage::running).size() == guards) break;
  }
  Outcome outcome;
  outcome.seconds = begin ? std::chrono::duration<double>(Clock::now() - *begin).count() : 0;
  outcome.complete = true;
  while (gone < children.size() && Clock::now() < end) {  // the last payloads still travel
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
  const int guards = argc > 1 ? std::atoi(argv[1]) : 1024, per_host = argc > 2 ? std::atoi(argv[2]) : 8;
  const std::size_t whole = static_cast<std::size_t>(argc > 3 ? std::atoi(argv[3]) : 10) << 20;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  const wire::KeyPair server = wire::KeyPair::generate(), client = wire::KeyPair::generate();
  int address[2];
  if (guards < processes || per_host < 1 || ::pipe(address) != 0) return 2;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {  // before there are threads
    const pid_t pid = ::fork();
    if (pid == 0) {
      char text[128] = {};
      if (::read(address[0], text, sizeof text) <= 0) std::_Exit(1);
      const int first = guards * p / processes, next = guards * (p + 1) / processes;
      be_guards({text, server.public_key}, client, first, next - first, whole);
    }
    children.push_back(pid);
  }
  std::vector<wire::RankManifest> manifests(static_cast<std::size_t>(guards));
  for (int r = 0; r < guards; ++r) {
    wire::RankManifest& m = manifests[static_cast<std::size_t>(r)];
    m.rank = r, m.size = guards, m.local_rank = r % per_host, m.local_size = per_host;
    m.host = "host" + std::to_string(r / per_host);
    m.payload.kind = wire::PayloadKind::pickle;
    for (int i = 0; i < 40; ++i) m.env["VARIABLE_" + std::to_string(i)] = std::string(100, 'x');
  }
  launcher::Session session(wire::listen({"tcp://127.0.0.1:*"}, server, client.public_key), manifests,
                            std::string(whole, 'p'), "/p", {});
  const std::size_t before = resident_bytes();
  char text[128] = {};
  std::snprintf(text, sizeof text, "%s", session.addresses().at(0).c_str());
  for (int p = 0; p < processes; ++p)
    if (::write(address[1], text, sizeof text) != sizeof text) return 2;
  const Outcome outcome = deliver(session, static_cast<std::size_t>(guards), children);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const std::size_t growth = static_cast<std::size_t>(usage.ru_maxrss) * 1024 - before;
  std::printf(
      "%d guards on %d hosts, payload %zu MiB a host: %.2f s, hvdrun's memory grew by %zu MiB, %.2f s of processor\n",
      guards, (guards + per_host - 1) / per_host, whole >> 20, outcome.seconds, growth >> 20,
      static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
          static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
  if (!outcome.complete) std::printf("not all guards were served\n");
  if (growth > most_growth_bytes) std::printf("that is more than %zu MiB\n", most_growth_bytes >> 20);
  return !outcome.complete || growth > most_growth_bytes;
}
