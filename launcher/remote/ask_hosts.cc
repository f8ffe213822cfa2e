#include "launcher/remote/ask_hosts.h"

#include <atomic>
#include <optional>
#include <string_view>
#include <thread>

#include "base/text.h"
#include "launcher/remote/preflight.h"
#include "launcher/remote/start_failure.h"
#include "launcher/start/remote_shell.h"
#include "placement/machine.h"
#include "placement/machine_text.h"

namespace hvd::launcher {

extern const char nccl_version_text[];  // made by the build of remote/nccl_version.py

namespace {

constexpr std::size_t most_hosts_at_once = 32;

/// The rest of the line that begins with @p key; empty: there is no such line.
std::string line_of(const std::string& text, std::string_view key) {
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with(key)) return std::string(trim(std::string_view(line).substr(key.size())));
  return {};
}

}  // namespace

std::string nccl_question() { return std::string(nccl_version_text) + "report_nccl()\n"; }

std::vector<std::string> way_to(const MappedHost& host, const Job& job) {
  if (host.local) return {"/bin/sh"};
  if (!job.launch_agent.empty()) return shell_on(job.launch_agent, host.name);
  const auto port = job.settings.integer("ssh-port");
  return shell_on(ssh_command(job.settings.text("ssh-program"), port ? std::to_string(*port) : "",
                              job.settings.text("ssh-identity-file"), 5),
                  host.name);
}

CaptureResult ask(const MappedHost& host, const Job& job, const std::string& script) {
  return capture(way_to(host, job), script, most_time_to_answer);
}

Error no_answer(const MappedHost& host, const CaptureResult& done) {
  StartFailureFacts facts;
  facts.absent_hosts = {host.name};
  facts.ssh_logs[host.name] = done.started ? done.err : std::string(cannot_run_mark) + "the way to it: " + done.err;
  facts.timed_out = done.timed_out;
  facts.waited_seconds = static_cast<double>(most_time_to_answer.count());
  facts.starter_end = "gave no whole answer";
  return start_failure(facts);
}

void for_each_host(const Job& job, const std::function<void(std::size_t)>& work) {
  const std::size_t count = job.map.hosts.size();
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < std::min(count, most_hosts_at_once); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < count;) work(i);
    });
}

// If this machine has GPUs, hvdrank is asked here too: hvdrun's own process does not load NVIDIA's library.
void look_at_machines(Job& job, const std::string& python) {
  Preflight here{job.rank_program, {}, {}, {}, {}};
  if (!job.settings.flag("allow-writable")) here.software_owners = job.software_owners;
  std::string script = preflight_script(here);
  if (!python.empty())
    script += "[ -d /proc/driver/nvidia/gpus ] && " + shell_quote(python) + run_stdin +
              " 2>/dev/null <<'END_OF_PYTHON'\n" + nccl_question() + "END_OF_PYTHON\n";
  script += "exec " + shell_quote(job.rank_program) + " --machine </dev/null\n";
  const std::vector<MappedHost>& hosts = job.map.hosts;
  job.machines.resize(hosts.size());
  std::vector<std::optional<Error>> failures(hosts.size());
  for_each_host(job, [&](std::size_t i) {
    if (hosts[i].local && placement::read_gpus().empty()) return;
    const CaptureResult done = ask(hosts[i], job, script);
    if (done.ok()) job.machines[i] = placement::machine_from_text(done.out);
    if (job.machines[i]) job.machines[i]->nccl = line_of(done.out, "nccl ");
    if (!job.machines[i] && !hosts[i].local) failures[i].emplace(no_answer(hosts[i], done));
  });
  for (const auto& failure : failures)
    if (failure) throw Error(*failure);
}

}  // namespace hvd::launcher
