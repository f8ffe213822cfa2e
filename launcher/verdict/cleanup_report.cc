#include "launcher/verdict/cleanup_report.h"

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_shown = 5;

/// {"sleep", "sh", "sleep"} → "sh, sleep (2 processes)".
std::string counts_text(const std::vector<std::string>& names) {
  std::map<std::string, int> counts;
  for (const std::string& name : names) ++counts[name];
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts)
    parts.push_back(count == 1 ? name : formatted("{} ({} processes)", name, count));
  if (parts.size() > most_shown) parts.resize(most_shown), parts.push_back("…");
  return join(parts, ", ");
}

/// The hosts' names; of more than five hosts, only their number.
std::string names_of(const std::vector<std::string>& hosts) {
  return hosts.size() > most_shown ? count_of(static_cast<long long>(hosts.size()), "host") : join(hosts, ", ");
}

}  // namespace

std::vector<std::string> trouble_lines(const std::map<std::string, HostCleanup>& hosts) {
  std::vector<std::string> lines, unseen;
  for (const auto& [host, after] : hosts) {
    if (after.gpu_bytes > 0)
      lines.push_back(formatted("hvdrun: on {} ended ranks still have {} of GPU memory: look with nvidia-smi", host,
                                human_bytes(after.gpu_bytes)));
    if (!after.looked_at) unseen.push_back(host);
    if (!after.swept.left.empty())
      lines.push_back(
          formatted("hvdrun: on {} processes of the job could not be ended: {}", host, join(after.swept.left, ", ")));
  }
  if (!unseen.empty())
    lines.push_back("hvdrun: could not check whether processes or files of the job remain on " + names_of(unseen) +
                    "; ranks end by themselves when they lose hvdrun");
  return lines;
}

std::vector<std::string> cleanup_lines(const std::map<std::string, HostCleanup>& hosts) {
  std::vector<std::string> lines, clean;
  bool no_gpu_memory = true;
  for (const auto& [host, after] : hosts) {
    if (after.looked_at && after.swept.left.empty()) {
      clean.push_back(host);
      no_gpu_memory &= after.gpu_bytes == 0;
    }
    std::vector<std::string> parts;
    if (!after.swept.ended.empty()) parts.push_back(counts_text(after.swept.ended) + " had to be ended");
    if (const std::size_t n = after.swept.files.size(); n > 0)
      parts.push_back(count_of(static_cast<long long>(n), "file") + (n == 1 ? " was" : " were") +
                      " removed from /dev/shm");
    if (!parts.empty()) lines.push_back(formatted("hvdrun: on {} {}", host, join(parts, "; ")));
  }
  if (!clean.empty())
    lines.push_back(formatted("hvdrun: 0 processes{} left on {}{}", no_gpu_memory ? ", 0 bytes of GPU memory" : "",
                              count_of(static_cast<long long>(clean.size()), "host"),
                              clean.size() > most_shown ? "" : ": " + join(clean, ", ")));
  return lines;
}

}  // namespace hvd::launcher
