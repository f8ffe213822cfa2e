#include "api/between_hosts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/text.h"
#include "common/log.h"
#include "transport/loopback.h"
#include "transport/tcp/fabric.h"
#include "transport/tcp/tcp_transport.h"

namespace hvd::api {
namespace {

using transport::tcp::Doorway;
using transport::tcp::Neighbours;
using transport::tcp::TcpOptions;

std::string value_of(const char* variable) {
  const char* const value = environment_value(variable);
  return value ? value : "";
}

/// The reason of this rank to choose MPI between hosts under HVD_TRANSPORT=auto; empty: there is none.  @p encrypts:
/// tensors must be encrypted, so a fabric is no reason.
std::string reason_for_mpi(bool encrypts) {
  const std::string operations = value_of("HOROVOD_CPU_OPERATIONS");
  if (operations == "MPI" || operations == "mpi") return "HOROVOD_CPU_OPERATIONS=" + operations;
  const std::string by = value_of("OMPI_MCA_btl");
  const bool tcp_only = value_of("OMPI_MCA_pml") == "ob1" && by.find("tcp") != std::string::npos && by[0] != '^';
  if (const std::string device = tcp_only || encrypts ? "" : transport::tcp::fabric_device("/sys/class");
      !device.empty())
    return "MPI may use " + device;
  return transport::tcp::reason_against();
}

TcpOptions options_of(const core::Config& config) {
  TcpOptions o;
  o.key = transport::tcp::job_key(static_cast<int>(config.integer("HVD_KEY_FD")));
  o.interfaces = value_of("OMPI_MCA_btl_tcp_if_include");  // hvdrun --network-interfaces sets it too
  o.encrypts = config.flag("HVD_ENCRYPT_TENSORS");
  o.filter = config.flag("HVD_FILTER_PEERS");
  o.threads_multiple = !config.flag("HOROVOD_MPI_THREADS_DISABLE");
  o.limit_seconds = std::min(config.number("HVD_INIT_TIMEOUT"), 60.0);
  o.needs_trial = config.text("HVD_TRANSPORT") == "auto";
  return o;
}

/// The text that each rank sends to all others before they choose a transport.
struct Words {
  std::string version, choice, encrypts, reason, introduction, machine, doorway;

  std::string text() const {
    return join({version, choice, encrypts, reason, introduction, machine, doorway}, {"\0", 1});
  }
  static Words of(const std::string& text) {
    std::vector<std::string> parts = hvd::split(text, '\0');
    parts.resize(7);
    return {parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]};
  }
};

/// volatile, so that the version stays one string in the binary, which a test replaces.
const char* volatile version = HVD_VERSION;

Words words_of(const std::string& introduction, const core::Config& config, bool many_hosts) {
  const bool encrypts = config.flag("HVD_ENCRYPT_TENSORS");
  Words w{
      version, config.text("HVD_TRANSPORT"), encrypts ? "1" : "0", "", introduction, transport::tcp::machine_identity(),
      ""};
  if (w.choice == "auto" && many_hosts) w.reason = reason_for_mpi(encrypts);
  return w;
}

/// Throws Error if ranks differ in their version or options.
void check_alike(const std::vector<Words>& all, int rank) {
  const Words& own = all[static_cast<std::size_t>(rank)];
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].version != all[0].version)
      throw Error(Code::unavailable, "libhvd",
                  "rank " + std::to_string(r) + " has version " + all[r].version + ", rank 0 has " + all[0].version +
                      ": install the same wheel on all hosts");
    for (const auto& [variable, word] :
         {std::pair("HVD_TRANSPORT", &Words::choice), {"HVD_ENCRYPT_TENSORS", &Words::encrypts}})
      if (all[r].*word != own.*word)
        throw Error(Code::usage, variable,
                    "rank " + std::to_string(r) + " has '" + all[r].*word + "', rank " + std::to_string(rank) +
                        " has '" + own.*word + "'",
                    "set it alike on all ranks");
  }
}

/// The first rank's reason for MPI between hosts; empty: no rank has one.
std::string reason_of(const std::vector<Words>& all) {
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].reason.empty()) return all[r].reason + " on rank " + std::to_string(r);
  return "";
}

/// MPI would carry tensors between hosts.  Throws Error{usage} if tensors must be encrypted.
void refuse_mpi(const TcpOptions& options, const std::string& choice, const std::string& reason) {
  if (!options.encrypts) return;
  throw Error(Code::usage, "--encrypt-tensors",
              "MPI would carry tensors between hosts in clear (" + (choice == "mpi" ? "--transport mpi" : reason) + ")",
              "use --transport tcp");
}

void tell_mpi(const std::string& choice, const std::string& reason) {
  log_info("between hosts tensors travel by MPI (--transport " + choice + ")" + (reason.empty() ? "" : ": " + reason));
}

/// The channel that brought the connections' key to this rank.  MPI's messages are not encrypted.
enum class KeyChannel { guard, meeting, mpi };

const char* told(KeyChannel channel) {
  switch (channel) {
    case KeyChannel::guard:
      return "connections prove the job's key";
    case KeyChannel::meeting:
      return "connections prove a key that the host daemon has carried";
    case KeyChannel::mpi:
      return "connections prove a key that MPI has carried in clear text";
  }
  return "";
}

/// Opens TCP, by transport::tcp::open().  Null: the trial has failed on all ranks; the reason is in @p refused.
TransportPtr connect(Doorway doorway, Neighbours neighbours, const TcpOptions& options, KeyChannel channel,
                     const std::string& choice, std::string* refused) {
  const bool tells = neighbours.rank == 0 && doorway.listener;
  if (options.encrypts && doorway.listener && channel == KeyChannel::mpi)
    throw Error(Code::usage, "--encrypt-tensors",
                "the key of connections would cross the network in clear, since hvdrun has not started this job",
                "start it with hvdrun");
  auto opened = transport::tcp::open(std::move(doorway), std::move(neighbours), options);
  *refused = opened.refused;
  if (options.encrypts && !opened.refused.empty())
    throw Error(Code::unavailable, "--encrypt-tensors",
                "hosts cannot connect to one another (" + opened.refused + "), and MPI would carry tensors in clear",
                "let the job's hosts connect to all of each other's ports");
  if (tells && !opened.refused.empty())
    log_warning("between hosts tensors travel by MPI, which is slower: " + opened.refused +
                " (let the job's hosts connect to all of each other's ports, or say --transport mpi)");
  if (tells && opened.refused.empty())
    log_info("between hosts tensors travel by TCP (--transport " + choice + "), " + told(channel) +
             (options.encrypts ? ", and all is encrypted" : "") +
             (opened.cards.empty() ? "" : "; large ones by all network interfaces at once: " + opened.cards));
  return std::move(opened.transport);
}

Neighbours neighbours_of(const std::vector<Words>& all, int rank, std::vector<int> hosts) {
  Neighbours n;
  n.rank = rank;
  n.hosts = std::move(hosts);
  for (const Words& w : all) {
    n.doorways.push_back(w.doorway);
    n.introductions.push_back(w.introduction);
  }
  return n;
}

/// [size] a host number for each rank.  Ranks of one daemon that can share memory have the same number.
std::vector<int> hosts_of(const RankMeeting::Gathered& gathered, const std::vector<Words>& all) {
  std::map<std::pair<int, std::string>, int> numbers;
  std::vector<int> hosts;
  for (std::size_t r = 0; r < all.size(); ++r)
    hosts.push_back(numbers.try_emplace({gathered.members[r].host, all[r].machine}, static_cast<int>(numbers.size()))
                        .first->second);
  return hosts;
}

std::vector<Words> words_of_all(const RankMeeting::Gathered& gathered) {
  std::vector<Words> all;
  for (const auto& member : gathered.members) all.push_back(Words::of(member.text));
  return all;
}

bool has_one_daemon(const RankMeeting::Gathered& gathered) {
  return std::all_of(gathered.members.begin(), gathered.members.end(),
                     [&](const auto& member) { return member.host == gathered.members[0].host; });
}

bool is_one_host(const std::vector<int>& hosts) { return std::equal(hosts.begin() + 1, hosts.end(), hosts.begin()); }

}  // namespace

FoundWorld world_by_meeting(RankMeeting& meeting, const std::vector<int>& ranks, const std::string& introduction,
                            const core::Config& config,
                            const std::function<TransportPtr(const std::vector<int>&)>& open_mpi) {
  const double limit = config.number("HVD_INIT_TIMEOUT");
  TcpOptions options = options_of(config);
  const auto revocation = std::make_shared<transport::Revocation>();
  options.revocation = revocation;
  options.between_hosts = options.key.has_value();  // the guard gives a key only to jobs on several hosts
  Words own = words_of(introduction, config, options.between_hosts);
  Doorway doorway;
  if (own.choice != "mpi" && own.reason.empty()) {
    doorway = transport::tcp::open_doorway(options, true);
    own.doorway = doorway.text;
  }
  const RankMeeting::Gathered gathered = meeting.meet(ranks, own.text(), limit);
  std::vector<Words> all = words_of_all(gathered);
  std::vector<int> launch_ranks;
  for (const auto& member : gathered.members) launch_ranks.push_back(member.rank);
  check_alike(all, gathered.rank);
  const std::vector<int> hosts = hosts_of(gathered, all);
  const bool is_split =
      !options.between_hosts && has_one_daemon(gathered) && !is_one_host(hosts) && own.choice != "mpi";
  if (is_split) {  // ranks in containers of their own: only now does this job need TCP
    options.between_hosts = true;
    doorway = transport::tcp::open_doorway(options, gathered.rank == 0);
    own.doorway = doorway.text;
    all = words_of_all(meeting.meet(launch_ranks, own.text(), limit, gathered.epoch));
  }
  const std::string reason = is_one_host(hosts) ? "" : reason_of(all);
  if (own.choice == "mpi" || !reason.empty()) {
    if (!is_one_host(hosts)) refuse_mpi(options, own.choice, reason);
    if (gathered.rank == 0 && !is_one_host(hosts)) tell_mpi(own.choice, reason);
    return {open_mpi(launch_ranks), nullptr};
  }
  if (all.size() == 1) return {transport::LoopbackWorld::make(1)->open(0), nullptr};
  options.needs_trial = options.needs_trial && !is_one_host(hosts);
  Neighbours neighbours = neighbours_of(all, gathered.rank, hosts);
  const auto look = [&] { return std::make_unique<RevocationWatch>(meeting, gathered.epoch, revocation); };
  std::unique_ptr<RevocationWatch> watch = look();
  neighbours.exchange = [&](const std::string& text) {
    watch.reset();  // meet() reads the watch's socket
    if (revocation->raised()) throw Error(Code::peer_lost, "init", revocation->why());
    std::vector<std::string> texts;
    for (auto& member : meeting.meet(launch_ranks, text, limit, gathered.epoch).members)
      texts.push_back(std::move(member.text));
    watch = look();
    return texts;
  };
  std::string refused;
  const auto channel = is_split ? KeyChannel::meeting : KeyChannel::guard;
  if (auto tcp = connect(std::move(doorway), std::move(neighbours), options, channel, own.choice, &refused))
    return {std::move(tcp), std::move(watch)};
  if (is_split)  // MPI's daemon is outside of the ranks' namespaces: Open MPI crashes there
    throw Error(Code::unavailable, "init",
                "ranks of this host run in different PID or user namespaces, or see different /dev/shm, and cannot "
                "connect by TCP (" +
                    refused + ")",
                "let the containers share the host's: --pid host, --ipc host, --network host (docs/hosts.md)");
  try {
    return {open_mpi(launch_ranks), nullptr};
  } catch (const Error& e) {
    throw Error(e.code, "init",
                "hosts cannot connect to one another (" + refused + "), and MPI cannot help: " + e.what(),
                "let the job's hosts connect to all of each other's ports");
  }
}

TransportPtr between_hosts(TransportPtr mpi, const std::string& introduction, const core::Config& config) {
  const std::vector<int> hosts = mpi->host_of();
  const std::string& choice = config.text("HVD_TRANSPORT");
  if (is_one_host(hosts) && (config.integer("HVD_RANKS_PER_NODE") == 0 || choice == "auto")) return mpi;
  TcpOptions options = options_of(config);
  options.threads_multiple = mpi->threads_multiple();
  Words own = words_of(introduction, config, true);
  Doorway doorway;
  if (own.choice != "mpi" && own.reason.empty()) {
    doorway = transport::tcp::open_doorway(options, mpi->rank() == 0);
    own.doorway = doorway.text;
  }
  const auto say = [&](const std::string& text) { return exchange(*mpi, text, config.number("HVD_INIT_TIMEOUT")); };
  std::vector<Words> all;
  for (const std::string& text : say(own.text())) all.push_back(Words::of(text));
  check_alike(all, mpi->rank());
  const std::string reason = reason_of(all);
  if (choice == "mpi" || !reason.empty()) {
    if (!is_one_host(hosts)) refuse_mpi(options, choice, reason);
    if (mpi->rank() == 0) tell_mpi(choice, reason);
    return mpi;
  }
  Neighbours neighbours = neighbours_of(all, mpi->rank(), hosts);
  neighbours.exchange = say;
  const auto channel = options.key ? KeyChannel::guard : KeyChannel::mpi;
  std::string refused;
  auto tcp = connect(std::move(doorway), std::move(neighbours), options, channel, choice, &refused);
  return tcp ? std::move(tcp) : std::move(mpi);
}

}  // namespace hvd::api
