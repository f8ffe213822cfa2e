#include "transport/tcp/tcp_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <span>

#include "base/error.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/text.h"
#include "memory/futex.h"
#include "transport/tcp/arrival_watch.h"
#include "transport/tcp/tls_library.h"

namespace hvd::transport::tcp {
namespace {

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

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<Mesh> mesh, std::unique_ptr<Transport> ranks_by, std::vector<int> members, int stream)
      : mesh_(std::move(mesh)), ranks_by_(std::move(ranks_by)), members_(std::move(members)), stream_(stream) {
    for (std::size_t i = 0; i < members_.size(); ++i) index_[members_[i]] = static_cast<int>(i);
  }
  ~TcpTransport() override { mesh_->forget(stream_); }

  int rank() const override { return ranks_by_->rank(); }
  int size() const override { return ranks_by_->size(); }
  const std::vector<int>& host_of() const override { return ranks_by_->host_of(); }
  bool threads_multiple() const override { return ranks_by_->threads_multiple(); }

  Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) override {
    if (is_others(tag)) return of_others(ranks_by_->isend(to, tag, data, bytes));
    return mesh_->send({member(to), stream_, tag}, data, bytes);
  }
  Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) override {
    if (is_others(tag)) return of_others(ranks_by_->irecv(from, tag, data, bytes));
    return mesh_->receive({member(from), stream_, tag}, data, bytes);
  }
  bool test(Ticket t) override { return t & others_bit ? ranks_by_->test(t & ~others_bit) : mesh_->test(t); }
  void abandon(Ticket t) override { t& others_bit ? ranks_by_->abandon(t & ~others_bit) : mesh_->abandon(t); }
  std::optional<Message> poll(Tag tag) override {
    if (is_others(tag)) return ranks_by_->poll(tag);
    auto m = mesh_->poll(stream_, tag);
    if (m) m->from = index_.at(m->from);
    return m;
  }

  std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) override {
    std::vector<int> all;
    for (const int m : members) all.push_back(member(m));
    return std::make_unique<TcpTransport>(mesh_, ranks_by_->split(members, stream), std::move(all), stream);
  }
  int streams() const override { return std::min(ranks_by_->streams(), 1 << 16); }
  std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) override {
    return ranks_by_->share_in_process(members, bytes);
  }

  bool watch(std::function<void()> arrived) override {
    if (arrived)
      watch_ = std::make_unique<ArrivalWatch>(mesh_->fd(), std::move(arrived));
    else if (watch_)
      watch_->stop();  // other threads may still arm it
    return true;
  }
  void arm(bool on) override {
    if (watch_) watch_->arm(on);
  }
  bool nap(std::int64_t ns) override {
    mesh_->nap(ns);
    return true;
  }
  std::vector<LostPeer> lost() const override { return mesh_->lost(); }
  std::vector<LostPeer> silent() const override { return mesh_->silent(); }

 private:
  static constexpr Ticket others_bit = Ticket{1} << 63;
  static bool is_others(Tag tag) { return tag == Tag::exchange || tag == Tag::share; }
  static Ticket of_others(Ticket t) { return t == 0 ? 0 : t | others_bit; }
  int member(int r) const { return members_[static_cast<std::size_t>(r)]; }

  std::shared_ptr<Mesh> mesh_;
  std::unique_ptr<Transport> ranks_by_;
  const std::vector<int> members_;  ///< [size] ranks of the world
  std::unordered_map<int, int> index_;
  const int stream_;
  std::unique_ptr<ArrivalWatch> watch_;
};

/// The job's key, or the one that rank 0 has made.  Throws Error{usage} where some ranks have none, or another.
JobKey agree(const std::vector<std::string>& keys, const std::optional<JobKey>& own) {
  for (std::size_t r = 0; r < keys.size(); ++r)
    if (own ? keys[r] != keys[0] : keys[r].starts_with("given"))
      throw Error(Code::usage, "TCP", "rank " + std::to_string(r) + " and rank 0 have different keys of the job",
                  "start all ranks by one hvdrun");
  if (own) return *own;
  const auto made = of_hex(keys[0].substr(std::strlen("made ")));
  if (!made) throw Error(Code::internal, "TCP", "rank 0 has sent no key");
  return *made;
}

/// The first rank of each host calls that of the next one, and waits for the call of the one before.  @return why that
/// has failed; empty: it has not.
std::string try_ring(Mesh& mesh, int rank, const std::vector<int>& hosts) {
  constexpr std::int64_t limit_ns = 10'000'000'000;
  constexpr int trial_stream = 0xffff;
  std::vector<int> first;  // rank of each host
  std::set<int> seen;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    if (seen.insert(hosts[r]).second) first.push_back(static_cast<int>(r));
  const auto me = std::find(first.begin(), first.end(), rank);
  if (me == first.end() || first.size() == 1) return "";
  const int next = me + 1 == first.end() ? first.front() : me[1];
  const int before = me == first.begin() ? first.back() : me[-1];
  const Ticket sent = mesh.send({next, trial_stream, Tag::exchange}, "", 0);
  bool left = false, came = false;
  const std::int64_t end = memory::now_ns() + limit_ns;
  while (!left || !came) {
    left = left || mesh.test(sent);
    came = came || mesh.poll(trial_stream, Tag::exchange).has_value();
    for (const LostPeer& l : mesh.lost()) return l.text;
    if (memory::now_ns() > end)
      return left ? mesh.name(before) + " has not called " + mesh.name(rank) : mesh.why_not(next);
    if (!left || !came) mesh.nap(1'000'000);
  }
  return "";
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

OpenResult open(std::unique_ptr<Transport> ranks_by, const TcpOptions& options) {
  static SocketCalls system;
  MeshPlan plan;
  plan.rank = ranks_by->rank();
  plan.hosts = ranks_by->host_of();
  plan.bulk_lanes = options.bulk_lanes;
  plan.limit_seconds = options.limit_seconds;
  plan.again_seconds = options.again_seconds;
  plan.leave_seconds = options.leave_seconds;

  ListenAddress own;
  plan.listener = open_listener(&own.port);
  own.addresses = addresses_of_host(options.interfaces);
  while (own.world == 0) fill_randomly(std::as_writable_bytes(std::span(&own.world, 1)));
  std::string key;
  if (options.key) {
    key = "given " + sha256_hex(to_hex(*options.key));
  } else {
    JobKey made{};
    if (plan.rank == 0) fill_randomly(std::as_writable_bytes(std::span(made)));
    key = plan.rank == 0 ? "made " + to_hex(made) : "made";
  }
  ListenAddress callers = own;  // a call may come from any address of its host
  callers.addresses = own_addresses().value_or(std::vector<Address>{});
  std::vector<std::string> keys;
  std::vector<Address> everybody;
  bool known = true;
  for (const std::string& text :
       exchange(*ranks_by, key + "\n" + own.text() + "\n" + callers.text(), options.limit_seconds)) {
    const std::vector<std::string> lines = hvd::split(text, '\n');
    if (lines.size() != 3) throw Error(Code::internal, "TCP", "a rank has sent no address");
    keys.push_back(lines[0]);
    plan.ranks.push_back(ListenAddress::of(lines[1]));
    const std::vector<Address> its = ListenAddress::of(lines[2]).addresses;
    known &= !its.empty();
    everybody.insert(everybody.end(), its.begin(), its.end());
  }
  plan.key = agree(keys, options.key);
  if (options.filter && known) restrict_listener(plan.listener.get(), everybody);

  std::vector<int> all(plan.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  auto mesh = std::make_shared<Mesh>(std::move(plan), options.calls ? *options.calls : system);
  if (options.needs_trial) {
    const std::string failure = try_ring(*mesh, ranks_by->rank(), ranks_by->host_of());
    for (const std::string& why : exchange(*ranks_by, failure, options.limit_seconds))
      if (!why.empty()) return {std::move(ranks_by), why};
  }
  return {std::make_unique<TcpTransport>(std::move(mesh), std::move(ranks_by), std::move(all), 0), ""};
}

}  // namespace hvd::transport::tcp
