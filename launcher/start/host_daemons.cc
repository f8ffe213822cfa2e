#include "launcher/start/host_daemons.h"

#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

std::vector<std::string> daemon_command(const std::string& rank_program, const std::vector<int>& ranks,
                                        const std::string& mpi_folder, bool elastic) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  std::vector<std::string> words{rank_program, elastic ? "--elastic-daemon" : "--daemon", join(texts, ",")};
  if (!elastic && !mpi_folder.empty()) words.push_back(mpi_folder);
  return words;
}

HostDaemons::HostDaemons(const std::vector<DaemonStart>& starts) : outputs_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const DaemonStart& s : starts) add_unstarted(s.host);
  for (const bool here : {false, true})  // other hosts take longer
    for (std::size_t i = 0; i < starts.size(); ++i)
      if (starts[i].input.empty() == here) start(i, starts[i]);
}

void HostDaemons::add(const DaemonStart& s) {
  add_unstarted(s.host);
  try {
    start(daemons_.size() - 1, s);
  } catch (const Error&) {
    daemons_.pop_back();
    throw;
  }
}

void HostDaemons::start(std::size_t place, const DaemonStart& s) {
  try {
    auto process = std::make_unique<ChildProcess>(s.command, s.environment, s.input);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = place;
    if (::epoll_ctl(outputs_.get(), EPOLL_CTL_ADD, process->output_fd(), &event) != 0)
      throw Error(Code::unavailable, "epoll", errno_text(errno));
    daemons_[place] = {s.host, s.may_hand_on, std::move(process), s.hosts};
  } catch (const Error& e) {
    if (s.input.empty()) throw;
    throw Error(e.code, "", std::string("ssh cannot be run here: ") + e.what(),
                "apt install openssh-client, or correct --ssh-program");
  }
}

DaemonReport HostDaemons::report(std::size_t daemon) {
  const StartedDaemon& d = daemons_.at(daemon);
  if (!d.process) return {};
  std::optional<int> status = d.process->status();
  if (status == 0 && d.may_hand_on) status.reset();
  return {status, d.process->output()};
}

std::vector<pid_t> HostDaemons::children() const {
  std::vector<pid_t> pids;
  for (const StartedDaemon& d : daemons_)
    if (d.process) pids.push_back(d.process->pid());
  return pids;
}

std::vector<int> HostDaemons::output_fds() const { return {outputs_.get()}; }

std::string HostDaemons::read_output() {
  std::string fresh;
  std::array<epoll_event, 64> events;
  for (int n; (n = ::epoll_wait(outputs_.get(), events.data(), static_cast<int>(events.size()), 0)) > 0;)
    for (int i = 0; i < n; ++i) {
      StartedDaemon& d = daemons_[events[static_cast<std::size_t>(i)].data.u64];
      const std::string its = d.process->read_output();
      if (!d.hosts.empty()) d.step.add(its);
      fresh += its;
    }
  output_ += fresh;
  if (output_.size() > most_output_bytes) output_.erase(0, output_.size() - most_output_bytes);
  return fresh;
}

std::optional<int> HostDaemons::status() {
  int worst = 0;
  for (const StartedDaemon& d : daemons_) {
    if (!d.process) continue;
    const auto status = d.process->status();
    if (!status) return std::nullopt;
    if (worst == 0) worst = *status;
  }
  return worst;
}

void HostDaemons::signal(int number) {
  for (const StartedDaemon& d : daemons_)
    if (d.process) d.process->signal(number);
}

std::map<std::string, std::string> HostDaemons::host_logs() const {
  std::map<std::string, std::string> logs;
  for (const StartedDaemon& d : daemons_) {
    if (!d.process) continue;
    if (d.hosts.empty() && !d.process->output().empty()) logs[d.host] = d.process->output();
    logs.insert(d.step.logs().begin(), d.step.logs().end());
  }
  return logs;
}

std::map<std::string, int> HostDaemons::ended_hosts() {
  // While no child has ended, one system call answers instead of one for each daemon.
  siginfo_t any{};
  const bool is_quiet = ::waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0 && any.si_pid == 0;
  std::map<std::string, int> ended;
  for (const StartedDaemon& d : daemons_) {
    if (!d.process) continue;
    ended.insert(d.step.ended().begin(), d.step.ended().end());
    const auto status = is_quiet ? d.process->known_status() : d.process->status();
    if (!status || (d.may_hand_on && *status == 0)) continue;
    if (d.hosts.empty()) ended[d.host] = *status;
    for (const std::string& host : d.hosts) ended.emplace(host, *status);
  }
  return ended;
}

bool HostDaemons::has_handed_on() {
  return std::any_of(daemons_.begin(), daemons_.end(),
                     [](const StartedDaemon& d) { return d.process && d.may_hand_on && d.process->status() == 0; });
}

}  // namespace hvd::launcher
