#include "transport/tcp/tcp_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/files/sha256.h"
#include "base/random.h"
#include "base/text.h"
#include "memory/futex.h"
#include "transport/tcp/arrival_watch.h"
#include "transport/tcp/stream/tls_library.h"

namespace hvd::transport::tcp {
namespace {

constexpr std::string_view given_key = "given ", made_key = "made ", no_key = "none";  ///< first word of a key line

std::string to_hex(const JobKey& key) {
  std::string text;
  for (const unsigned char byte : key) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::optional<JobKey> of_hex(const std::string& text) {
  JobKey key{};
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    key[i / 2] = static_cast<unsigned char>(key[i / 2] << 4 | digit);
  }
  return key;
}

/// The state that all views of one world share.
struct Connected {
  Messages messages;
  const bool threads_multiple;
  const std::vector<std::string> introductions;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<Connected> world, int rank, std::vector<int> hosts, std::vector<int> members, int stream)
      : world_(std::move(world)), rank_(rank), hosts_(std::move(hosts)), members_(std::move(members)), stream_(stream) {
    for (std::size_t i = 0; i < members_.size(); ++i) index_[members_[i]] = static_cast<int>(i);
    if (stream_ != 0) messages().open(stream_, members_);
  }
  ~TcpTransport() override { messages().forget(stream_); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::vector<int>& host_of() const override { return hosts_; }
  bool threads_multiple() const override { return world_->threads_multiple; }
  const std::vector<std::string>& introductions() const override {
    return stream_ == 0 ? world_->introductions : Transport::introductions();
  }

  Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) override {
    return messages().send({member(to), stream_, tag}, data, bytes);
  }
  Ticket isend_shared(int to, Tag tag, const std::shared_ptr<std::string>& body) override {
    return messages().send({member(to), stream_, tag}, body);
  }
  Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) override {
    return messages().receive({member(from), stream_, tag}, data, bytes);
  }
  bool test(Ticket t) override { return messages().test(t); }
  void abandon(Ticket t) override { messages().abandon(t); }
  bool gives_memory_back() const override { return true; }
  std::optional<Message> poll(Tag tag) override {
    while (auto m = messages().poll(stream_, tag)) {
      const auto from = index_.find(m->from);
      if (from == index_.end()) continue;  // sent by a non-member before this rank opened the stream
      m->from = from->second;
      return m;
    }
    return std::nullopt;
  }

  std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) override {
    std::vector<int> all, hosts;
    int own = -1;
    for (const int m : members) {
      if (m == rank_) own = static_cast<int>(all.size());
      all.push_back(member(m));
      hosts.push_back(hosts_[static_cast<std::size_t>(m)]);
    }
    return std::make_unique<TcpTransport>(world_, own, std::move(hosts), std::move(all), stream);
  }
  int streams() const override { return std::numeric_limits<int>::max(); }

  bool watch(std::function<void()> arrived) override {
    if (arrived)
      watch_ = std::make_unique<ArrivalWatch>(messages().fd(), std::move(arrived));
    else if (watch_)
      watch_->stop();  // the object stays, because other threads may still arm it
    return true;
  }
  void arm(bool on) override {
    if (watch_) watch_->arm(on);
  }
  void call_later() override {
    if (watch_) watch_->call_later();
  }
  bool nap(std::int64_t ns) override {
    messages().nap(ns);
    return true;
  }
  bool flush() override { return messages().flush(); }
  std::vector<LostPeer> lost() const override { return world_->messages.lost(); }
  std::string revoked() const override { return world_->messages.revoked(); }
  std::vector<LostPeer> silent() const override { return world_->messages.silent(); }
  std::vector<LinkUse> links() const override { return world_->messages.links(); }

 private:
  Messages& messages() { return world_->messages; }
  int member(int r) const { return members_[static_cast<std::size_t>(r)]; }

  std::shared_ptr<Connected> world_;
  const int rank_;
  const std::vector<int> hosts_;    ///< [size]
  const std::vector<int> members_;  ///< [size] ranks of the world
  std::unordered_map<int, int> index_;
  const int stream_;
  std::unique_ptr<ArrivalWatch> watch_;
};

/// @p keys: [size] the key line of each rank.  Throws Error{usage, unavailable} on all ranks if the lines do not match.
void check_keys(const std::vector<std::string>& keys) {
  for (std::size_t r = 0; r < keys.size(); ++r) {
    const std::string name = "rank " + std::to_string(r);
    if (keys[r] != keys[0] && (keys[r].starts_with(given_key) || keys[0].starts_with(given_key)))
      throw Error(Code::usage, "TCP", name + " and rank 0 have different keys of the job",
                  "start all ranks by one hvdrun");
    if (const bool other = keys[r] == no_key; other != (keys[0] == no_key))
      throw Error(Code::unavailable, "unix sockets",
                  (other ? "rank 0" : name) + " cannot make one where others call it, and " +
                      (other ? name : "rank 0") + " can",
                  "let all ranks make files in /dev/shm or /tmp");
  }
}

/// Returns the job's key, or else the key that rank 0 has made.  Throws Error{internal} if rank 0 has sent no key.
JobKey key_of(const std::vector<std::string>& keys, const std::optional<JobKey>& own) {
  if (own) return *own;
  const auto made = keys[0].starts_with(made_key) ? of_hex(keys[0].substr(made_key.size())) : std::nullopt;
  if (!made) throw Error(Code::internal, "TCP", "rank 0 has sent no key");
  return *made;
}

/// Returns the text for `OpenResult::cards`.
std::string cards_to_next_host(const LinkPlan& plan) {
  std::vector<std::string> cards;
  for (int r = 0; r < plan.size() && cards.empty(); ++r)
    for (const SharedNetwork& way : plan.ways(r)) cards.push_back(to_text(way));
  return join(cards, " and ");
}

/// Makes the kernel drop packets from other addresses than the ranks'.  Connections that already wait are closed after
/// accept().
void close_to_strangers(const LinkPlan& plan) {
  std::vector<Address> everybody;
  for (const std::vector<Address>& its : plan.callers) everybody.insert(everybody.end(), its.begin(), its.end());
  restrict_listener(plan.listener.get(), everybody);
}

/// The trial on one rank.  The first rank of each host calls the first rank of the next host.  Then the rank waits
/// for the call from the host before.  Other ranks do nothing.
class RingTrial {
 public:
  RingTrial(Messages& messages, int rank, const std::vector<int>& hosts) : messages_(messages), rank_(rank) {
    std::vector<int> first;  // first rank of each host
    std::set<int> seen;
    for (std::size_t r = 0; r < hosts.size(); ++r)
      if (seen.insert(hosts[r]).second) first.push_back(static_cast<int>(r));
    const auto me = std::find(first.begin(), first.end(), rank);
    if (me == first.end() || first.size() == 1) return;
    next_ = me + 1 == first.end() ? first.front() : me[1];
    before_ = me == first.begin() ? first.back() : me[-1];
    sent_ = messages_.send({next_, 0, Tag::exchange}, "", 0);
    left_ = came_ = false;
  }

  // The first character of round()'s result.  Empty result: both connections are established.
  static constexpr char unreachable = 'u';  ///< the next host does not answer, or refuses
  static constexpr char disturbed = 'd';    ///< a host answers, but its connection failed
  static constexpr char waits = 'w';        ///< a connection may still be established

  /// Waits until both connections are established, at most @p seconds.  Returns "" or one of the characters above with
  /// a reason.
  std::string round(double seconds) {
    const std::int64_t end = memory::now_ns() + nanoseconds(seconds);
    for (;;) {
      left_ = left_ || messages_.test(sent_);
      came_ = came_ || messages_.poll(0, Tag::exchange).has_value();
      for (const LostPeer& l : messages_.lost())
        return (accepted_ || l.rank != next_ ? disturbed : unreachable) + l.text;
      if (left_ && came_) return "";
      accepted_ = accepted_ || messages_.reached(next_);
      if (memory::now_ns() > end) break;
      messages_.nap(1'000'000);
    }
    if (left_) return waits + (messages_.name(before_) + " has not called " + messages_.name(rank_));
    return (accepted_ ? waits : unreachable) + messages_.why_not(next_);
  }

 private:
  Messages& messages_;
  const int rank_;
  int next_ = -1, before_ = -1;
  Ticket sent_ = 0;
  bool left_ = true, came_ = true;
  bool accepted_ = false;  ///< the next host has accepted a connection
};

/// Runs the trial.  Collective.  All ranks get the same result, because all ranks exchange their results.
/// @return the rank that cannot be reached; empty: the hosts are connected in a ring.  Throws Error{unavailable} if the
/// hosts reach each other but cannot connect.
std::string try_ring(Messages& messages, const Neighbours& neighbours, double seconds) {
  constexpr int most_rounds = 5;
  RingTrial trial(messages, neighbours.rank, neighbours.hosts);
  for (int round = 1;; ++round) {
    std::string disturbed, waits;
    for (const std::string& said : neighbours.exchange(trial.round(seconds))) {
      if (said.starts_with(RingTrial::unreachable)) return said.substr(1);
      if (said.starts_with(RingTrial::disturbed) && disturbed.empty()) disturbed = said.substr(1);
      if (said.starts_with(RingTrial::waits) && waits.empty()) waits = said.substr(1);
    }
    if (disturbed.empty() && waits.empty()) return "";
    if (disturbed.empty() && round < most_rounds) continue;
    throw Error(Code::unavailable, "TCP",
                "hosts reach one another, but something ends their connections or takes their places (" +
                    (disturbed.empty() ? waits : disturbed) + ")",
                "find the other program that connects to the ranks' ports, or use --transport mpi, which needs no key");
  }
}

}  // namespace

std::string reason_against() {
  try {
    tls();
  } catch (const Error& e) { return e.what(); }
  return "";
}

std::optional<JobKey> job_key(int fd) {
  char text[2 * std::tuple_size_v<JobKey> + 1];
  const ssize_t got = fd >= 0 ? pread(fd, text, sizeof text, 0) : -1;
  return got > 0 ? of_hex(std::string(text, static_cast<std::size_t>(got))) : std::nullopt;
}

Doorway open_doorway(const TcpOptions& options, bool may_make_key) {
  Doorway d;
  if (options.local_sockets) d.local = UnixListener::open();
  while (d.own.world == 0) fill_randomly(std::as_writable_bytes(std::span(&d.own.world, 1)));
  std::string key(no_key);
  ListenAddress callers = d.own;  // this rank may call from any address of its host
  if (options.between_hosts || !d.local) {
    d.listener = open_listener(&d.own.port);
    if (options.cards.empty()) d.own.addresses = addresses_of_host(options.interfaces, &d.own.cards);
    for (const CardAddress& c : options.cards) {
      d.own.cards.push_back(c);
      d.own.addresses.push_back(c.at);
    }
    callers.addresses = own_addresses().value_or(std::vector<Address>{});
    if (options.key) {
      key = std::string(given_key) + sha256_hex(to_hex(*options.key));
    } else {
      JobKey made{};
      if (may_make_key) fill_randomly(std::as_writable_bytes(std::span(made)));
      key = std::string(made_key) + (may_make_key ? to_hex(made) : "");
    }
  }
  d.text = join({key, d.own.text(), callers.text(), d.local ? machine_identity() : "", d.local ? d.local->path() : ""},
                "\n");
  return d;
}

OpenResult open(Doorway doorway, Neighbours neighbours, const TcpOptions& options) {
  static SocketCalls system;
  const auto me = static_cast<std::size_t>(neighbours.rank);
  LinkPlan plan;
  plan.rank = neighbours.rank;
  plan.hosts = neighbours.hosts;
  plan.listener = std::move(doorway.listener);
  plan.local = std::move(doorway.local);
  plan.encrypts = options.encrypts;
  plan.bulk_lanes = options.bulk_lanes;
  plan.limit_seconds = options.limit_seconds;
  plan.again_seconds = options.again_seconds;
  plan.leave_seconds = options.leave_seconds;
  plan.handshake_seconds = options.handshake_seconds;
  plan.revocation = options.revocation;

  std::vector<std::string> keys;
  const std::string own_machine = machine_identity();
  bool known = true;
  for (std::size_t r = 0; r < neighbours.doorways.size(); ++r) {
    const std::vector<std::string> lines = hvd::split(neighbours.doorways[r], '\n');
    if (lines.size() != 5) throw Error(Code::internal, "TCP", "a rank has sent no address");
    keys.push_back(lines[0]);
    plan.ranks.push_back(ListenAddress::of(lines[1]));
    plan.on_machine.push_back(plan.hosts[r] == plan.hosts[me] && lines[3] == own_machine);
    if (plan.on_machine.back()) plan.ranks.back().path = lines[4];
    plan.callers.push_back(ListenAddress::of(lines[2]).addresses);
    known &= !plan.callers.back().empty();
  }
  check_keys(keys);
  if (plan.listener) plan.key = key_of(keys, options.key);
  if (!options.filter || !known) plan.callers.clear();
  if (plan.listener && !plan.callers.empty()) close_to_strangers(plan);

  const std::string cards = cards_to_next_host(plan);
  std::vector<int> all(plan.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  auto world = std::shared_ptr<Connected>(new Connected{{std::move(plan), options.calls ? *options.calls : system},
                                                        options.threads_multiple,
                                                        std::move(neighbours.introductions)});
  if (options.needs_trial) {
    std::string unreachable = try_ring(world->messages, neighbours, options.trial_seconds);
    if (!unreachable.empty()) return {nullptr, std::move(unreachable), ""};
  }
  return {
      std::make_unique<TcpTransport>(std::move(world), neighbours.rank, std::move(neighbours.hosts), std::move(all), 0),
      "", cards};
}

}  // namespace hvd::transport::tcp
