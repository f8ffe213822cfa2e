#include "launcher/remote/start_failure.h"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "launcher/remote/preflight.h"
#include "launcher/start/remote_shell.h"
#include "launcher/start/starter_output.h"

namespace hvd::launcher {

namespace {

struct SshSymptom {
  std::string_view text;        ///< in the output of ssh or the daemon
  std::string_view what, hint;  ///< %H: the host
};

constexpr SshSymptom ssh_signs[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", "the ssh key of %H has changed",
     "if that is right: ssh-keygen -R %H, then ssh %H once"},
    {"Host key verification failed", "the ssh key of %H is not known here", "ssh %H once by hand and accept its key"},
    {"Permission denied", "%H refused the ssh login", "ssh-copy-id %H, or name a key with -i FILE"},
    {"Too many authentication failures", "%H refused the ssh login", "name the right key with -i FILE"},
    {"Could not resolve hostname", "ssh does not know the host %H", "check the spelling, or try: getent hosts %H"},
    {"Connection refused", "nothing listens for ssh on %H",
     "is sshd running there? another port is given with -p PORT"},
    {"timed out", "%H does not answer", "is it up? try: ssh %H true"},
    {"No route to host", "there is no route to %H", "is it up? try: ssh %H true"},
    {"orted: not found", "Open MPI is not installed on %H",
     "install the same Open MPI there (apt install openmpi-bin)"},
    {"orted: No such file", "Open MPI is not installed on %H", "install the same Open MPI there, in the same folder"},
    {"prted: not found", "Open MPI is not installed on %H", "install the same Open MPI there, in the same folder"},
    {"prted: No such file", "Open MPI is not installed on %H", "install the same Open MPI there, in the same folder"},
    {cannot_run_mark, "ssh cannot be run here", "apt install openssh-client, or correct --ssh-program"},
};

std::string with_host(std::string_view text, const std::string& host) {
  std::string out(text);
  for (std::size_t at; (at = out.find("%H")) != std::string::npos;) out.replace(at, 2, host);
  return out;
}

/// The line of @p text that holds the byte @p at.
std::string line_at(const std::string& text, std::size_t at) {
  const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
  return std::string(trim(text.substr(begin, text.find('\n', at) - begin)));
}

std::optional<Error> from_ssh(const StartFailureFacts& facts) {
  for (const auto& [host, log] : facts.ssh_logs)
    if (auto problem = preflight_problem(host, log)) return problem;
  for (const auto& [host, log] : facts.ssh_logs)
    for (const SshSymptom& sign : ssh_signs)
      if (const std::size_t at = log.find(sign.text); at != std::string::npos)
        return Error(Code::unavailable, "", with_host(sign.what, host),
                     with_host(sign.hint, host) + "\n        it said: " + line_at(log, at));
  return std::nullopt;
}

std::string said(const StartFailureFacts& facts) {
  std::string out;
  std::set<std::string> told;  // the daemons' output contains the hosts' logs
  for (const auto& [host, log] : facts.ssh_logs)
    for (const std::string& line : telling_lines(log, 5)) out += "\n        " + host + ": " + line, told.insert(line);
  for (const std::string& line : telling_lines(facts.starter_output, 12))
    if (!told.contains(line)) out += "\n        " + facts.starter + ": " + line;
  return out;
}

}  // namespace

Error start_failure(const StartFailureFacts& facts) {
  if (auto error = from_ssh(facts)) return *error;
  const std::string hosts = join(facts.absent_hosts, ", ");
  const std::string who = ranks_text(facts.absent_ranks) + " on " + hosts;
  if (facts.timed_out) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", facts.waited_seconds);
    return Error(Code::timeout, "start", who + " did not come up within " + seconds + " s" + said(facts),
                 "give more time with --start-timeout, or look there: ssh " + facts.absent_hosts.front() + " true");
  }
  if (facts.starter_output.find("hvdrank") != std::string::npos)
    return Error(Code::unavailable, "start", "hvdrank could not be started on " + hosts + said(facts),
                 facts.starter_output.find("Resource temporarily unavailable") != std::string::npos
                     ? "too many processes? see ulimit -u, and pids.max of a container"
                     : "hvdrun must be installed in the same folder on every host");
  const std::string words = said(facts);
  return Error(Code::unavailable, "start",
               facts.starter + " " + facts.starter_end + " before " + who + " came up" + words,
               words.empty() ? "look there: ssh " + facts.absent_hosts.front() +
                                   " echo well; a start file of the shell, such as ~/.bashrc, may end it"
                             : "run again with --verbose to see all that " + facts.starter + " says");
}

std::string why_no_daemon(const std::string& host, const std::string& said, std::optional<int> status) {
  StartFailureFacts facts;
  facts.ssh_logs[host] = said;
  std::string what = "it has not answered";
  if (status)
    what = WIFSIGNALED(*status) ? "the shell there was killed by signal " + std::to_string(WTERMSIG(*status))
                                : "the shell there ended with exit code " + std::to_string(WEXITSTATUS(*status));
  if (const auto error = from_ssh(facts)) what = split(error->what(), '\n').at(0);
  const std::vector<std::string> lines = telling_lines(said, 1);
  return lines.empty() || what.find(lines[0]) != std::string::npos ? what : what + " (" + lines[0] + ")";
}

std::map<std::string, std::string> read_ssh_logs(const std::string& folder) {
  std::map<std::string, std::string> logs;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("ssh.")) continue;
    try {
      std::string text = read_file(entry.path(), 1u << 20);
      if (!text.empty()) logs[name.substr(4)] = std::move(text);
    } catch (const Error&) {}  // the log is gone or too long: ignored
  }
  return logs;
}

}  // namespace hvd::launcher
