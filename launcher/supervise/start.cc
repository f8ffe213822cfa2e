/// The first part of a job's life: keys, channel, manifests, the ranks' starter.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/leftovers.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/random.h"
#include "base/text.h"
#include "launcher/mpirun/mpirun.h"
#include "launcher/mpirun/mpirun_starter.h"
#include "launcher/start/host_daemons.h"
#include "launcher/supervise/start/job_environment.h"
#include "launcher/supervise/start/rank_manifests.h"
#include "launcher/supervise/start/starter_environment.h"
#include "launcher/supervise/supervisor.h"

namespace hvd::launcher {

namespace {

PrinterOptions printer_options(const Job& job) {
  PrinterOptions options;
  for (const MappedRank& p : job.map.ranks) options.hosts.push_back(job.map.host_of(p.rank).name);
  options.folder = job.settings.text("output-filename");
  options.timestamps = job.settings.flag("prefix-output-with-timestamp");
  if (job.settings.has("collapse")) options.collapse = job.settings.flag("collapse");
  const char* no_colour = environment_value("NO_COLOR");
  const char* terminal = environment_value("TERM");
  options.may_redraw = terminal && *terminal && std::string_view(terminal) != "dumb";
  options.may_colour = !(no_colour && *no_colour) && !(terminal && std::string_view(terminal) == "dumb");
  if (job.elastic) options.collapse = false;
  options.reader = job.settings.integer("stdin").value_or(-1);
  return options;
}

std::string new_job_id() { return random_letters(8); }

/// Memory that nobody can change any more, readable through /proc/PID/fd/N by this user's processes.
Fd sealed_memory(const std::string& bytes) {
  Fd fd(::memfd_create("hvdrun-payload", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || !write_all(fd.get(), bytes) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    throw Error(Code::unavailable, "payload", "cannot be held in memory: " + errno_text(errno));
  return fd;
}

/// A descriptor for each guard's connection and each rank's output files, where the usual 1024 do not do.
/// @param all_here  all on this host, under our own daemon: with too few files it would end without a word
void allow_files(std::size_t ranks, bool all_here) {
  rlimit files{};
  const rlim_t wanted = 4 * ranks + 512, least = 2 * ranks + 32;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  if (all_here && files.rlim_max < least)
    throw Error(Code::unavailable, "",
                formatted("a process may open only {} files here, too few for {}", files.rlim_max,
                          count_of(static_cast<long long>(ranks), "rank")),
                formatted("raise the hard limit to {} or more (ulimit -Hn, or nofile in limits.conf)", wanted));
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

/// Where hosts of an elastic job reach us, all of which we know by now.  @p tcp  what was bound: to all addresses
std::string control_addresses(const Job& job, const std::vector<std::string>& tcp) {
  std::vector<std::string> addresses;
  if (tcp.empty()) return "";
  const std::string port = tcp[0].substr(tcp[0].rfind(':'));
  for (const std::string& ip : job.reach_us) addresses.push_back("tcp://" + ip + port);
  return join(addresses, " ");
}

std::string tcp_address(const std::string& ip) {
  return ip.find(':') == std::string::npos ? "tcp://" + ip + ":*" : "tcp://[" + ip + "]:*";
}

}  // namespace

Supervisor::Supervisor(Job& job)
    : job_(job),
      verbose_(job.settings.flag("verbose")),
      grace_seconds_(job.settings.number("grace")),
      printer_(printer_options(job)) {}

void Supervisor::start() {
  started_at_ = Clock::now();
  started_wall_seconds_ = wall_seconds();
  next_progress_ = started_at_ + std::chrono::seconds(2);
  become_subreaper();
  allow_files(job_.map.ranks.size(), job_.map.all_local() && job_.launcher.kind == LauncherKind::daemons);
  const std::string timeline = job_.settings.text("timeline-filename");
  timeline_ = std::make_unique<JobTimeline>(
      timeline == "DYNAMIC" ? "" : timeline, job_.map,
      static_cast<std::uint64_t>(job_.settings.integer("timeline-max-mb").value_or(1024)) << 20);

  if (job_.settings.has("results")) results_ = std::make_unique<Results>(job_.settings.text("results"));

  const bool may_spread = job_.elastic && job_.elastic->may_spread;
  const bool here = job_.map.all_local() && !may_spread;
  const auto new_keys = here ? wire::KeyPair::for_this_host : wire::KeyPair::generate;
  const wire::KeyPair server = new_keys(), client = new_keys();
  std::vector<std::string> bind{here ? folder_.local_address() : folder_.control_address()};
  if (!here) {
    if (job_.reach_us.empty() && !may_spread)
      throw Error(Code::unavailable, job_.map.hosts.back().name, "there is no route to it",
                  "is the network up? try: ip route");
    if (may_spread)
      bind.emplace_back("tcp://0.0.0.0:*");  // from where other hosts will come is not known yet
    else
      for (const std::string& ip : job_.reach_us) bind.push_back(tcp_address(ip));
  }
  const std::string job_id = new_job_id();
  std::string payload = std::move(job_.payload.bytes);
  std::string payload_path;
  if (job_.payload.wire.kind == wire::PayloadKind::pickle) {
    payload_ = sealed_memory(payload);
    payload_path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(payload_.get());
    if (here) payload = {};  // nobody needs it over the channel
  }
  auto listener = wire::listen(bind, server, client.public_key);
  const bool daemons = job_.launcher.kind == LauncherKind::daemons;
  const auto environment_of = daemons ? daemon_environment : mpirun_environment;
  std::map<std::string, std::string> environment = environment_of(job_, folder_.path(), server, client);
  std::vector<std::string> tcp;
  for (const std::string& address : listener->addresses())
    if (address.starts_with("tcp://")) tcp.push_back(address);
  environment["HVD_CONTROL"] = may_spread ? control_addresses(job_, tcp) : join(tcp, " ");
  environment["HVD_JOB"] = job_id;
  if (daemons)
    starter_ = std::make_unique<HostDaemons>(daemon_starts(job_, environment));
  else
    starter_ = std::make_unique<MpirunStarter>(job_.command, environment);
  detail("started " + starter_->name() + " (" + job_.launcher.why + "): " + job_.command[0] + ", process " +
         std::to_string(starter_->children().front()));

  // While it starts: what only the manifests need.
  share_out(job_, environment_value);
  servers_ = script_servers(job_, job_id);
  std::vector<wire::RankManifest> all =
      rank_manifests(job_, {job_id, job_environment(), results_ != nullptr, timeline_->has_file(), servers_});
  session_ = std::make_unique<Session>(std::move(listener), std::move(all), std::move(payload), payload_path, events());
  if (daemons) session_->serve(std::make_unique<DaemonLinks>(daemon_manifest(job_, job_id), daemon_events()));
  if (const auto rank = job_.settings.integer("stdin"))
    input_ = std::make_unique<Input>(0, *rank, [this, r = *rank](std::string piece) {
      if (std::ranges::count(piece, '\n') > 0) printer_.line_was_typed();
      session_->feed(r, std::move(piece));
    });
  report_.expect(job_.map.ranks.size());
  if (const std::string file = job_.settings.text("metrics"); !file.empty())
    metrics_ = std::make_unique<MetricsFile>(file);
  open_otlp();
  if (job_.elastic) elastic_ = elastic_part(job_id, std::move(environment), tcp);
  const auto name = [](const wire::Payload& p) { return (p.kind == wire::PayloadKind::module ? "-m " : "") + p.name; };
  job_id_ = job_id;
  std::string title = name(job_.payload.wire);
  for (std::size_t i = 1; i < job_.programs.size(); ++i) title += " : " + name(job_.programs[i].payload);
  operations_ = std::make_unique<KeptOperations>(*session_, job_.map, job_id);
  live_ = std::make_unique<JobServer>(
      *session_, job_.map, folder_.path(), JobDescription{job_id, title, started_wall_seconds_, grace_seconds_},
      JobServer::ServerCallbacks{
          [this] { on_signal(SIGTERM); }, [this](bool as_json) { return top(as_json); },
          [this](const std::string& path, bool named) { return timeline_->start(*session_, path, named); },
          [this] { return timeline_->stop(*session_); }, [this](auto done) { operations_->ask(std::move(done)); },
          elastic_ ? std::function<std::vector<int>()>([this] { return elastic_->ranks(); }) : nullptr});
  watch_ = std::make_unique<HangWatch>(
      *session_, job_.map, patience(), job_.elastic.has_value(),
      HangWatch::WatchCallbacks{[this](const std::string& line) {
                                  if (end_.goes_on()) say(line);
                                },
                                [this](const std::vector<int>& ranks, std::function<void(const Pictures&)> done) {
                                  live_->ask(ranks, std::move(done));
                                },
                                [this](const std::string& why) { give_up(why); }, [this] { keep_operations(); },
                                [this](auto done) { operations_->ask(std::move(done)); }});
}

/// Where OpenTelemetry's variables name a collector.
void Supervisor::open_otlp() {
  std::optional<OtlpTarget> target = otlp_target(environment_value);
  if (!target) return;
  const char* const path = environment_value("PATH");
  const std::string curl = find_program("curl", path ? path : "/usr/bin:/bin");
  if (curl.empty()) return say("hvdrun: no metrics to " + target->url + ": curl is not installed on this host");
  if (!job_.settings.flag("allow-writable")) look_at(curl, PathUse::file, {::geteuid() != 0, {}}).need_trust(curl);
  otlp_ = std::make_unique<OtlpSender>(curl, std::move(*target), folder_.path() + "/otlp");
}

std::unique_ptr<ElasticPart> Supervisor::elastic_part(const std::string& job_id,
                                                      std::map<std::string, std::string> environment,
                                                      const std::vector<std::string>& tcp) {
  ElasticPart::ElasticCallbacks calls;
  calls.manifest = [this, job_id, lines = job_environment()](const MappedRank& rank) {
    return rank_manifest(job_, rank, {job_id, lines, results_ != nullptr, timeline_->has_file(), servers_});
  };
  calls.start_host = [this, environment = std::move(environment), tcp](int host, const std::vector<int>& ranks) {
    auto of_host = environment;
    of_host["HVD_CONTROL"] = control_addresses(job_, tcp);
    static_cast<HostDaemons&>(*starter_).add(daemon_start(job_, of_host, host, ranks));  // it is: choose_command()
  };
  calls.report = [this](int host) {  // hosts and daemons are added together
    return static_cast<HostDaemons&>(*starter_).report(static_cast<std::size_t>(host));
  };
  calls.end = [this](const std::string& why) {
    ended_.elastic = why;
    stop("the elastic job cannot go on");
  };
  return std::make_unique<ElasticPart>(job_, *session_, printer_, std::move(calls));
}

std::optional<HangLimits> Supervisor::patience() const {
  if (!job_.settings.flag("stall-check")) return std::nullopt;
  HangLimits p;
  p.warn = job_.settings.number("stall-check-warning-time-seconds");
  p.shutdown = job_.settings.number("stall-check-shutdown-time-seconds");
  p.hang = std::min(p.hang, p.warn);
  return p;
}

}  // namespace hvd::launcher
