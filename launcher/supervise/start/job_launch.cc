#include "launcher/supervise/start/job_launch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <set>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/network/interface_address.h"
#include "base/process/process.h"
#include "base/random.h"
#include "base/text.h"
#include "launcher/mpirun/mpirun_starter.h"
#include "launcher/start/starter_output.h"
#include "launcher/supervise/start/job_environment.h"
#include "launcher/supervise/start/rank_manifests.h"
#include "launcher/supervise/start/starter_environment.h"
#include "wire/channel/paths.h"

namespace hvd::launcher {

namespace {

/// Sealed memory, which this user's processes can read through /proc/PID/fd/N.
Fd sealed_memory(const std::string& bytes) {
  Fd fd(::memfd_create("hvdrun-payload", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || !write_all(fd.get(), bytes) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    throw Error(Code::unavailable, "payload", "cannot be held in memory: " + errno_text(errno));
  return fd;
}

constexpr std::size_t most_further_addresses = wire::most_paths - 1;

std::string tcp_address(const std::string& ip) {
  return ip.find(':') == std::string::npos ? "tcp://" + ip + ":*" : "tcp://[" + ip + "]:*";
}

}  // namespace

std::vector<std::string> JobLaunch::addresses_to_bind() const {
  if (stays_here()) return {folder_.local_address()};
  std::vector<std::string> addresses{folder_.control_address()};
  if (job_.reach_us.empty() && !may_spread())
    throw Error(Code::unavailable, job_.map.hosts.back().name, "there is no route to it",
                "is the network up? try: ip route");
  if (may_spread())
    addresses.emplace_back("tcp://0.0.0.0:*");  // the hosts to come are not known yet
  else
    for (const auto& ips : {job_.reach_us, further_addresses()})
      for (const std::string& ip : ips) addresses.push_back(tcp_address(ip));
  return addresses;
}

std::vector<std::string> JobLaunch::further_addresses() const {
  if (!has_daemons() || stays_here()) return {};
  const std::vector<InterfaceAddress> own = interface_addresses();
  const std::string wanted = job_.settings.text("network-interfaces");
  const std::vector<std::string> names = wanted.empty() ? std::vector<std::string>{} : split(wanted, ',');
  std::set<std::string> taken;
  for (const InterfaceAddress& a : own)
    if (std::ranges::find(job_.reach_us, a.text()) != job_.reach_us.end()) taken.insert(a.interface);
  std::vector<std::string> found;
  for (const bool is_ipv4 : {true, false})
    for (const InterfaceAddress& a : own) {
      const bool is_wanted = names.empty() || std::ranges::any_of(names, [&](const std::string& n) {
                               return is_meant(n, a.interface, a.at);
                             });
      const bool is_bound = !may_spread() || is_ipv4;  // the hosts to come are awaited on 0.0.0.0
      if (is_ipv4 != (a.text().find(':') == std::string::npos) || !is_wanted || !is_bound) continue;
      if (found.size() < most_further_addresses && taken.insert(a.interface).second) found.push_back(a.text());
    }
  return found;
}

void JobLaunch::tell_addresses() {
  std::vector<std::string> known = tcp_, all = tcp_;
  if (!may_spread()) {
    known.resize(std::min(known.size(), job_.reach_us.size()));
  } else if (!tcp_.empty()) {  // one port, on all addresses
    const std::string port = tcp_[0].substr(tcp_[0].rfind(':'));
    const auto with_port = [&](std::vector<std::string> ips) {
      for (std::string& ip : ips) ip = "tcp://" + ip + port;
      return ips;
    };
    known = with_port(job_.reach_us);
    all = known;
    std::ranges::copy(with_port(further_addresses()), std::back_inserter(all));
  }
  environment_["HVD_CONTROL"] = join(known, " ");
  if (has_daemons()) environment_["HVD_CONTROL_OTHERS"] = join(all, " ");
}

PayloadDelivery JobLaunch::take_payload() {
  std::string bytes = std::move(job_.payload.bytes);
  if (job_.payload.wire.kind != wire::PayloadKind::pickle) return {std::move(bytes), ""};
  payload_ = sealed_memory(bytes);
  if (stays_here()) bytes = {};  // no copy goes over the channel
  return {std::move(bytes), formatted("/proc/{}/fd/{}", ::getpid(), payload_.get())};
}

std::unique_ptr<Session> JobLaunch::begin(const EventSink& events) {
  const auto new_keys = stays_here() ? wire::KeyPair::for_this_host : wire::KeyPair::generate;
  const wire::KeyPair server = new_keys(), client = new_keys();
  job_id_ = random_letters(8);
  const std::vector<std::string> addresses = addresses_to_bind();
  PayloadDelivery payload = take_payload();
  auto listener = wire::listen(addresses, server, client.public_key);
  for (const std::string& address : listener->addresses())
    if (address.starts_with("tcp://")) tcp_.push_back(address);

  environment_ = starter_environment(job_, folder_.path(), server, client);
  tell_addresses();
  environment_["HVD_JOB"] = job_id_;
  if (has_daemons())
    starter_ = std::make_unique<HostDaemons>(daemon_starts(job_, environment_));
  else
    starter_ = std::make_unique<MpirunStarter>(job_.command, environment_);
  printer_.detail(formatted("started {} ({}): {}, process {}", starter_->name(), job_.launcher.why, job_.command[0],
                            starter_->children().front()));

  // The starter comes up meanwhile: only the manifests need the rest.
  share_out(job_, environment_value);
  servers_ = script_servers(job_, job_id_);
  auto session = std::make_unique<Session>(std::move(listener), manifests(), std::move(payload), events);
  if (!job_.elastic && !job_.map.host_of(0).local)
    session->wait_for_rank_0([this](const wire::Hello& rank_0) {
      use_ports_of_rank_0(servers_, rank_0.ports);
      return manifests();
    });
  if (has_daemons()) session->serve(daemon_manifest(job_, job_id_));
  return session;
}

std::vector<wire::RankManifest> JobLaunch::manifests() const {
  return rank_manifests(job_, {job_id_, job_environment(), collects_results_, timeline_.has_file(), servers_});
}

void JobLaunch::read_starter_output() {
  const std::string fresh = starter_->read_output();
  if (!printer_.is_verbose() || fresh.empty()) return;
  for (const std::string& line : telling_lines(fresh, 1000)) printer_.say(starter_->name() + ": " + line);
}

void JobLaunch::continue_stopped() {
  if (!stopped_.are_any()) return;
  const std::vector<pid_t> own = starter_->children();
  for (const pid_t pid : stopped_.overdue(std::chrono::steady_clock::now())) {
    if (std::ranges::find(own, pid) == own.end()) continue;  // an orphan of a rank
    ::kill(pid, SIGCONT);
    printer_.say(
        formatted("hvdrun: {}, which starts ranks, process {}, was stopped by a signal for {} s; it got SIGCONT, "
                  "because the job waits for it",
                  process_name(pid), pid, StoppedChildren::limit.count() / 1000));
  }
}

wire::RankManifest JobLaunch::manifest(const MappedRank& rank) const {
  return rank_manifest(job_, rank, {job_id_, job_environment(), collects_results_, timeline_.has_file(), servers_});
}

void JobLaunch::start_host(int host, const std::vector<int>& ranks) {
  tell_addresses();
  try {
    daemons().add(daemon_start(job_, environment_, host, ranks));
  } catch (const Error&) {
    daemons().add_unstarted(job_.map.hosts[static_cast<std::size_t>(host)].name);
    throw;
  }
}

}  // namespace hvd::launcher
