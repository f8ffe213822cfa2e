/// Other programs call a rank's port, or listen at a port that a rank calls; and ranks leave while connections are
/// made.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>

#include "base/load.h"
#include "tcp_ranks.h"
#include "transport/tcp/connect/caller_places.h"
#include "transport/tcp/connect/links.h"

using namespace hvd;
using namespace hvd::testing;
using namespace hvd::transport::tcp;
using transport::Tag;
using transport::Transport;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The address at which a rank listens.
struct Door {
  std::uint16_t port = 0;
  std::string path;  ///< the path of its unix socket
};

/// Opens a silent connection, by the unix socket if there is one, else to the port.  Does not wait.
Fd silent_call(const Door& door) {
  const CallAddress to = door.path.empty() ? call_address(loopback_address, door.port) : call_address(door.path);
  Fd fd(::socket(to.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.at), to.bytes);
  return fd;
}

/// A stranger on this host.  The stranger keeps @p count silent connections to each address, and makes further
/// connections all the time.
class Stranger {
 public:
  Stranger(std::vector<Door> doors, std::size_t count) : doors_(std::move(doors)) {
    for (const Door& door : doors_)
      for (std::size_t i = 0; i < count; ++i) held_.push_back(silent_call(door));
    thread_ = std::thread([this] { call(); });
  }
  ~Stranger() {
    over_ = true;
    thread_.join();
  }

 private:
  void call() {
    for (std::size_t i = 0; !over_; ++i) {
      renewed_[i % renewed_.size()] = silent_call(doors_[i % doors_.size()]);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const std::vector<Door> doors_;
  std::vector<Fd> held_;
  std::array<Fd, 50> renewed_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Runs @p size ranks, each on its own host, or all on one host that accepts no foreign connections. Calls @p meanwhile
/// with their addresses before they connect. @return the error of each rank.
std::vector<std::string> run_open(int size, const TcpOptions& options,
                                  const std::function<void(const std::vector<Door>&)>& meanwhile,
                                  const std::function<void(Transport&)>& f) {
  std::vector<int> hosts;
  for (int r = 0; r < size; ++r) hosts.push_back(options.between_hosts ? r : 0);
  const auto world = std::make_shared<transport::LoopbackWorld>(hosts);
  std::vector<Door> doors(hosts.size());
  std::vector<std::string> failures(hosts.size());
  std::vector<std::thread> threads;
  std::atomic<int> open_doors{0};
  std::atomic<bool> go{false};
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        const auto meets = world->open(r);
        Doorway doorway = open_doorway(options, r == 0);
        doors[static_cast<std::size_t>(r)] = {doorway.own.port, doorway.local ? doorway.local->path() : ""};
        ++open_doors;
        while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        Neighbours n;
        n.rank = r;
        n.hosts = hosts;
        n.exchange = [&](const std::string& text) { return exchange(*meets, text, 60); };
        n.doorways = n.exchange(doorway.text);
        const OpenResult opened = open(std::move(doorway), std::move(n), options);
        if (!opened.transport) throw Error(Code::unavailable, "refused", opened.refused);
        f(*opened.transport);
      } catch (const std::exception& e) { failures[static_cast<std::size_t>(r)] = e.what(); }
    });
  while (open_doors < size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  meanwhile(doors);
  go = true;
  for (std::thread& t : threads) t.join();
  return failures;
}

}  // namespace

TEST_CASE("silent connections, from before the ranks meet to the end, keep no rank out") {
  for (const auto way : {by_tcp, by_unix_sockets}) {
    std::unique_ptr<Stranger> stranger;
    TcpOptions o = way(0);
    o.needs_trial = o.between_hosts;
    Clock::time_point begin;
    check_none(run_open(
        3, o,
        [&](const auto& doors) {
          stranger = std::make_unique<Stranger>(doors, 300);
          begin = Clock::now();
        },
        [](Transport& t) {
          exchange_all(t, {10, 100'000});
        }));
    CHECK(seconds_since(begin) < 6 * load_factor());  // it was 10 s, followed by no TCP
  }
}

TEST_CASE("an address may have as many connections as its ranks can need, other addresses none") {
  const auto address = [](const char* text) { return *address_of_text(text); };
  LinkPlan plan;
  plan.rank = 1;
  plan.hosts = {0, 0, 1, 1, 2};
  for (const char* at : {"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"}) {
    ListenAddress listens;
    listens.addresses = {address(at)};
    plan.ranks.push_back(listens);
    plan.callers.push_back({address(at), address("fd00::1")});
  }
  plan.bulk_lanes = 20;
  plan.on_machine = {true, true, false, false, false};
  plan.local = UnixListener::open();
  REQUIRE(plan.local);
  {
    const CallerPlaces places(plan);
    CHECK(places.of(address("10.0.0.2")) == 2 * 2 * 21);
    CHECK(places.of(address("10.0.0.3")) == 2 * 21);
    CHECK(places.of(address("fd00::1")) == 3 * 2 * 21);
    CHECK(places.of(address("10.0.0.4")) == 0);
    CHECK(places.of_this_host() == 2 * 21);
  }
  plan.callers[4] = {address("10.0.0.3")};
  for (auto& from : {0, 1}) plan.callers[static_cast<std::size_t>(from)] = {address("10.0.0.1")};
  CHECK(CallerPlaces(plan).of(loopback_address) == 0);  // ranks of this host have unix sockets
  plan.local.reset();
  CHECK(CallerPlaces(plan).of(loopback_address) == 2 * 21);
  plan.bulk_lanes = 1;
  CHECK(CallerPlaces(plan).of(address("10.0.0.3")) == 32);  // a few are always reserved
  plan.callers.clear();
  CHECK(CallerPlaces(plan).of(address("10.0.0.4")) == 32);
}

namespace {

/// The first calls reach a program that accepts them and stays silent, or closes them.
class Detour final : public SocketCalls {
 public:
  Detour(std::uint16_t port, int calls) : port_(port), left_(calls) {}
  int connect(int fd, const sockaddr* to, socklen_t bytes) override {
    if (left_-- <= 0) return SocketCalls::connect(fd, to, bytes);
    const char* const here = to->sa_family == AF_INET6 ? "::1" : "127.0.0.1";
    const CallAddress there = call_address(*address_of_text(here), port_);
    return SocketCalls::connect(fd, reinterpret_cast<const sockaddr*>(&there.at), there.bytes);
  }

 private:
  const std::uint16_t port_;
  std::atomic<int> left_;
};

}  // namespace

TEST_CASE("an address that accepts calls and says nothing is given up for the next") {
  std::uint16_t port = 0;
  const Fd silent = open_listener(&port);  // its backlog takes the calls
  Detour calls(port, 2);
  TcpOptions o = by_tcp();
  o.handshake_seconds = 0.05;
  o.calls = &calls;
  const auto begin = Clock::now();
  check_none(run_tcp(
      2, [](Transport& t) { exchange_all(t, {10}); }, [&](int) { return o; }));
  CHECK(seconds_since(begin) < 5 * load_factor());  // it was 10 s, followed by the loss of the peer
}

TEST_CASE("where hosts answer and their connections are not made, the trial does not give tensors to MPI") {
  std::uint16_t port = 0;
  const Fd silent = open_listener(&port);
  Detour calls(port, 1 << 20);
  TcpOptions o = by_tcp();
  o.needs_trial = true;
  o.trial_seconds = 0.1;
  o.handshake_seconds = 0.05;
  o.calls = &calls;
  for (const double limit : {60.0, 0.3}) {  // the rounds end first, or the calls
    o.limit_seconds = limit;
    for (const std::string& f : run_open(
             2, o, [](const auto&) {}, [](Transport&) {})) {
      INFO(limit << " s: " << f);
      CHECK(f.find("hosts reach one another") != std::string::npos);
      CHECK(f.find("refused") == std::string::npos);
    }
  }
}

TEST_CASE("calls that are reset are made again") {
  std::uint16_t port = 0;
  Fd resets = open_listener(&port);
  std::atomic<bool> over{false};
  std::thread closer([&] {
    while (!over) {
      const Fd fd(::accept4(resets.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const linger at_once{1, 0};
      if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  Detour calls(port, 20);
  TcpOptions o = by_tcp();
  o.needs_trial = true;
  o.trial_seconds = 0.3;
  o.calls = &calls;
  check_none(run_open(
      2, o, [](const auto&) {},
      [](Transport& t) {
        exchange_all(t, {10, 100'000});
      }));
  over = true;
  closer.join();
}

TEST_CASE("ranks of which only some have unix sockets are told so") {
  const auto failures = run_tcp(
      2, [](Transport& t) { exchange_all(t, {1}); },
      [](int r) {
        TcpOptions o = by_unix_sockets();
        o.local_sockets = r == 0;
        return o;
      });
  for (const std::string& f : failures) CHECK(f.find("rank 1 cannot make one") != std::string::npos);
}

TEST_CASE("a rank that leaves while it still calls has left in order") {
  for (const auto way : {by_tcp, by_tls, by_unix_sockets}) {
    const auto failures = run_tcp(
        2,
        [](Transport& t) {
          if (t.rank() == 0) return void(t.isend(1, Tag::up, "the end", 7));
          if (await(t, Tag::up).body != "the end") throw Error(Code::internal, "test", "wrong message");
          char byte;
          await(t, t.irecv(0, Tag::data, &byte, 1));
        },
        way);
    CHECK(failures[0] == "");
    CHECK(failures[1] == "rank 0 has shut down while this rank waits for it");
  }
}

TEST_CASE("a rank that leaves while it is called has left in order") {
  for (const auto way : {by_tcp, by_tls, by_unix_sockets}) {
    std::atomic<bool> called{false}, leaves{false};
    const auto failures = run_tcp(
        2,
        [&](Transport& t) {
          if (t.rank() == 0) {
            while (!called) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            leaves = true;
            return;
          }
          char byte;
          const transport::Ticket in = t.irecv(0, Tag::data, &byte, 1);
          t.isend(0, Tag::up, "x", 1);
          called = true;
          while (!leaves) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          await(t, in);
        },
        way);
    CHECK(failures[0] == "");
    CHECK(failures[1] == "rank 0 has shut down while this rank waits for it");
  }
}

namespace {

/// Every send fails while it is set.
class Broken final : public SocketCalls {
 public:
  bool on = false;
  ssize_t send(int fd, const iovec* parts, int count) override {
    if (!on) return SocketCalls::send(fd, parts, count);
    errno = ECONNRESET;
    return -1;
  }
};

/// Drops arriving frames. Once a frame has left lane 0, and lane 1 is up, it sends one there, which fails.
class LosesWithin final : public LinksUser {
 public:
  explicit LosesWithin(Broken* calls = nullptr) : calls_(calls) {}
  Links* connections = nullptr;
  bool lost = false, armed = false;
  int arrived_frames = 0;

  unsigned char* place(Lane&, const FrameHeader&) override { return nullptr; }
  void arrived(Lane&, const FrameHeader&) override { ++arrived_frames; }
  void left(Lane& lane, const OutFrame&) override {
    if (lane.number() != 0 || !std::exchange(armed, false)) return;
    calls_->on = true;
    connections->add(lane.peer(), 1, {});
    calls_->on = false;
  }
  void lane_ended(const Lane&) override {}
  void peer_lost(int) override { lost = true; }

 private:
  Broken* const calls_;
};

}  // namespace

TEST_CASE("a loss in the midst of a send leaves nothing that seems to wait for the network") {
  Broken broken;
  SocketCalls well;
  LosesWithin user(&broken), other;
  Doorway doors[] = {open_doorway(by_tcp(), true), open_doorway(by_tcp(), true)};
  const auto plan_of = [&](int rank) {
    LinkPlan plan;
    plan.rank = rank;
    plan.hosts = {0, 1};
    for (const Doorway& d : doors) plan.ranks.push_back(d.own);
    plan.leave_seconds = 0.01;
    return plan;
  };
  LinkPlan plans[] = {plan_of(0), plan_of(1)};
  for (const int r : {0, 1}) plans[r].listener = std::move(doors[r].listener);
  Links mine(std::move(plans[0]), broken, user), theirs(std::move(plans[1]), well, other);
  user.connections = &mine;
  const auto run_until = [&](const auto& done) {
    for (const auto end = Clock::now() + std::chrono::seconds(20); !done() && Clock::now() < end;) {
      mine.progress();
      theirs.progress();
    }
  };
  mine.add(1, 1, {});
  run_until([&] { return other.arrived_frames == 1; });
  const std::string much(64 << 20, 'x');  // more than a socket takes
  OutFrame large;
  large.header.bytes = much.size();
  large.data = much.data();
  user.armed = true;
  mine.add(1, 0, {});
  mine.add(1, 0, std::move(large));
  run_until([&] { return user.lost; });
  REQUIRE(user.lost);
  CHECK_FALSE(mine.flush());
}
