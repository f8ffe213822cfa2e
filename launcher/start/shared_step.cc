#include "launcher/start/shared_step.h"

#include "base/format.h"
#include "base/text.h"
#include "launcher/process/child_process.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_argument_bytes = 100'000;  // Linux allows 128 KiB
constexpr std::string_view begins = "hvdrun-host ", ends = "hvdrun-ended ";

}  // namespace

std::vector<std::string> shared_step_command(const std::vector<std::string>& launch_agent,
                                             const std::vector<std::string>& hosts) {
  const std::string count = std::to_string(hosts.size()), list = "--nodelist=" + join(hosts, ",");
  const std::map<std::string, std::string> changes{{"--nodes=1", "--nodes=" + count},
                                                   {"--ntasks=1", "--ntasks=" + count},
                                                   {"--nodelist={host}", list},
                                                   {"--input=0", "--input=all"}};
  if (launch_agent.empty() || launch_agent[0] != "srun" || list.size() > most_argument_bytes) return {};
  std::size_t changed = 0;
  std::vector<std::string> command;
  for (const std::string& word : launch_agent) {
    const auto change = changes.find(word);
    changed += change != changes.end();
    command.push_back(change == changes.end() ? word : change->second);
  }
  if (changed != changes.size()) return {};
  command.insert(command.end(), {"--ntasks-per-node=1", "--label", "/bin/sh"});
  return command;
}

std::string shared_step_script(const std::vector<std::pair<std::string, std::string>>& ranks,
                               const std::string& script) {
  std::string text = "case $SLURMD_NODENAME in\n";
  for (const auto& [host, its] : ranks)
    text += formatted("{}) HVD_HOST={} hvd_ranks={} ;;\n", shell_quote(host), shell_quote(host), its);
  // The subshell reads no part of this text, because the shell has already read all of it.
  return text + "*) echo \"srun has put a daemon on $SLURMD_NODENAME\" >&2; exit 4 ;;\nesac\necho \"" +
         std::string(begins) + "$HVD_HOST\"\n(\n" + script + ")\necho \"" + std::string(ends) + "$?\"\n";
}

void SharedStepOutput::add(std::string_view piece) {
  rest_ += piece;
  std::size_t at = 0;
  for (std::size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1)
    add_line(std::string_view(rest_).substr(at, end - at));
  rest_.erase(0, at);
  if (rest_.size() > most_output_bytes) rest_.clear();
}

/// "12: text".  srun's own lines have no label.
void SharedStepOutput::add_line(std::string_view line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return;
  const std::string task(trim(line.substr(0, colon)));  // srun pads the number
  const std::string_view text = line.substr(colon + 2);
  if (text.starts_with(begins)) {
    host_of_.emplace(task, text.substr(begins.size()));
    return;
  }
  const auto host = host_of_.find(task);
  if (host == host_of_.end()) return;
  if (text.starts_with(ends)) {
    ended_.emplace(host->second, static_cast<int>(to_integer(text.substr(ends.size())).value_or(255)) << 8);
    return;
  }
  std::string& log = logs_[host->second];
  log.append(text) += '\n';
  if (log.size() > most_output_bytes) log.erase(0, log.size() - most_output_bytes);
}

}  // namespace hvd::launcher
