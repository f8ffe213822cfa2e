#include "launcher/supervise/start/arrivals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/network/listen_filter.h"
#include "base/text.h"
#include "launcher/remote/start_failure.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

using namespace std::chrono_literals;

namespace {

constexpr auto paths_may_come = 5s;  // over further networks, after all ranks have come

}  // namespace

Arrivals::Arrivals(const Job& job, std::string folder, Session& session, JobLaunch& launch, Printer& printer,
                   const JobClock& clock)
    : job_(job),
      folder_(std::move(folder)),
      session_(session),
      launch_(launch),
      printer_(printer),
      clock_(clock),
      started_at_(clock.seconds(monotonic_seconds())),
      next_progress_(Clock::now() + 2s) {}

void Arrivals::greet(const wire::Hello& h) {
  const MappedHost& planned = job_.map.host_of(h.rank);
  const bool elsewhere = h.host != planned.name && std::ranges::any_of(job_.map.hosts, [&](const MappedHost& p) {
                           return !p.local && p.name == h.host;
                         });
  if (h.local != planned.local || elsewhere)
    throw Error(Code::unavailable, "mpirun", formatted("put rank {} on {} instead of {}", h.rank, h.host, planned.name),
                "do --mpi-args or OMPI_ variables change the mapping?");
  if (h.version != HVD_VERSION && planned.name != warned_host_) {
    warned_host_ = planned.name;
    printer_.say("hvdrun: " + planned.name + " has hvdrank " + h.version +
                 ", this is hvdrun " HVD_VERSION ": install the same wheel everywhere");
  }
  printer_.detail(formatted("rank {} is there, process {} on {}", h.rank, h.pid, h.host));
}

void Arrivals::tell_start(int rank, const wire::StartReport& s) {
  const std::string where = s.cpus.empty() ? "unbound" : "cores " + ranges(s.cpus);
  const std::string memory = s.memory_node < 0 ? "" : formatted(", memory of node {}", s.memory_node);
  printer_.detail(formatted("rank {} runs as process {}, {}{}{}", rank, s.pid, where, memory,
                            s.python.empty() ? "" : ", Python " + s.python));
  if (!s.warning.empty()) printer_.say(formatted("hvdrun: rank {}: {}", rank, s.warning));
}

void Arrivals::close_to_strangers() {
  if (job_.elastic || is_closed_ || (session_.awaits_paths() && Clock::now() < close_at_)) return;
  is_closed_ = true;
  close_listeners(::getpid());
  launch_.starter()->close_to_strangers(true);
  session_.tell_complete();
}

bool Arrivals::turn() {
  if (session_.num_in_stage(RankStage::absent) == 0 && session_.daemons_have_come()) {
    close_at_ = Clock::now() + paths_may_come;
    return true;
  }
  RankStarter& starter = *launch_.starter();
  if (job_.map.all_local()) starter.close_to_strangers(false);
  const auto now = Clock::now();
  const bool is_time = now >= next_progress_;
  if (const auto ended = starter.ended_hosts(); is_time || !ended.empty()) {
    const std::vector<int> absent = session_.in_stage(RankStage::absent);
    if (std::ranges::any_of(absent, [&](int r) { return ended.contains(job_.map.host_of(r).name); })) fail(false);
    if (is_time && !absent.empty()) tell_progress(absent);
  }
  if (clock_.seconds(monotonic_seconds()) - started_at_ > job_.settings.number("start-timeout")) fail(true);
  return false;
}

void Arrivals::tell_progress(const std::vector<int>& absent) {
  next_progress_ = Clock::now() + 10s;
  std::vector<std::string> hosts;
  for (const int rank : absent)
    if (const std::string& host = job_.map.host_of(rank).name; std::ranges::find(hosts, host) == hosts.end())
      hosts.push_back(host);
  if (hosts.size() > 4) hosts.resize(4), hosts.push_back("…");
  printer_.say("hvdrun: waiting for " + count_of(static_cast<long long>(absent.size()), "rank") + " to come up on " +
               join(hosts, ", "));
}

void Arrivals::fail(bool timed_out) {
  StartFailureFacts facts;
  facts.absent_ranks = session_.in_stage(RankStage::absent);
  for (const int rank : facts.absent_ranks)
    if (const std::string& host = job_.map.host_of(rank).name;
        facts.absent_hosts.empty() || facts.absent_hosts.back() != host)
      facts.absent_hosts.push_back(host);
  launch_.read_starter_output();
  RankStarter& starter = *launch_.starter();
  facts.ssh_logs = read_ssh_logs(folder_);
  facts.ssh_logs.merge(starter.host_logs());
  facts.starter = starter.name();
  facts.starter_output = starter.output();
  facts.timed_out = timed_out;
  facts.waited_seconds = job_.settings.number("start-timeout");
  std::optional<int> status = starter.status();
  for (const auto& [host, code] : starter.ended_hosts())
    if (status.value_or(0) == 0) status = code;
  if (status)
    facts.starter_end = WIFSIGNALED(*status) ? "was killed by " + signal_text(WTERMSIG(*status))
                                             : formatted("ended with exit code {}", WEXITSTATUS(*status));
  throw start_failure(facts);
}

}  // namespace hvd::launcher
