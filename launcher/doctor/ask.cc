#include "launcher/doctor/ask.h"

#include <atomic>
#include <optional>
#include <thread>

#include "base/text.h"
#include "launcher/doctor/preflight.h"
#include "launcher/mpirun/agent.h"
#include "launcher/supervise/start_failure.h"
#include "place/exchange.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_threads = 32;

}  // namespace

Captured ask(const PlanHost& host, const JobPlan& job, const std::string& script) {
  std::vector<std::string> command{"/bin/sh"};
  if (!host.local) {
    const auto port = job.settings.integer("ssh-port");
    command = shell_on(job.launch_agent.empty()
                           ? ssh_command(job.settings.text("ssh-program"), port ? std::to_string(*port) : "",
                                         job.settings.text("ssh-identity-file"), 5)
                           : job.launch_agent,
                       host.name);
  }
  return capture(command, script, most_time_to_answer);
}

Error no_answer(const PlanHost& host, const Captured& done) {
  StartFacts facts;
  facts.absent_hosts = {host.name};
  facts.ssh_logs[host.name] = done.started ? done.err : "hvdrun: cannot run the way to it: " + done.err;
  facts.timed_out = done.timed_out;
  facts.waited_seconds = static_cast<double>(most_time_to_answer.count());
  facts.mpirun_end = "gave no whole answer";
  return start_failure(facts);
}

void for_each_host(const JobPlan& job, const std::function<void(std::size_t)>& work) {
  const std::size_t count = job.plan.hosts.size();
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < std::min(count, most_threads); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < count;) work(i);
    });
}

void look_at_machines(JobPlan& job) {
  const std::string script = preflight_script({job.rank_program, {}, {}, {}, {}}) + "exec " +
                             shell_quote(job.rank_program) + " --machine </dev/null\n";
  const std::vector<PlanHost>& hosts = job.plan.hosts;
  job.machines.resize(hosts.size());
  std::vector<std::optional<Error>> failures(hosts.size());
  for_each_host(job, [&](std::size_t i) {
    if (hosts[i].local) return;
    const Captured done = ask(hosts[i], job, script);
    if (done.ok()) job.machines[i] = place::read_machine(done.out);
    if (!job.machines[i]) failures[i].emplace(no_answer(hosts[i], done));
  });
  for (const auto& failure : failures)
    if (failure) throw Error(*failure);
}

}  // namespace hvd::launcher
