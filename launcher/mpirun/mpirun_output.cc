#include "launcher/mpirun/mpirun_output.h"

#include <cstdint>

#include "base/text.h"
#include "launcher/start/starter_output.h"

namespace hvd::launcher {

namespace {

/// Leaves out mpirun's reactions to a rank's end: blocks between lines of dashes.
std::string without_reactions(const std::string& mpirun_output) {
  std::string kept, block;
  const auto end_block = [&] {
    if (block.find("exited due to process rank") == std::string::npos) kept += block;
    block.clear();
  };
  for (const std::string& line : split(mpirun_output, '\n')) {
    if (line.starts_with("-----")) end_block();
    block += line + "\n";
  }
  end_block();
  return kept;
}

}  // namespace

std::vector<std::string> first_words(const std::string& all_output) {
  const std::string mpirun_output = without_reactions(all_output);
  constexpr std::size_t most = 16;
  // Useful lines contain "MPI_INIT has failed" or "MPI_ABORT was invoked".  Other lines are mpirun's reaction to a
  // rank's end.
  if (mpirun_output.find("MPI_") == std::string::npos) {
    if (mpirun_output.find("show_help.c") == std::string::npos) return {};
    return {"a rank's message was lost on its way to mpirun (ORTE_ERROR_LOG): run again to see it"};
  }
  std::vector<std::string> lines = telling_lines(mpirun_output, SIZE_MAX);
  std::erase_if(lines, [](const std::string& l) { return l.find("ORTE_ERROR_LOG") != std::string::npos; });
  if (lines.size() > most) lines.resize(most);
  return lines;
}

std::string lost_connection(const std::string& output, const JobMap& map) {
  if (map.all_local() || output.find("daemon") == std::string::npos) return {};
  std::vector<std::string> named, remote;
  for (const MappedHost& h : map.hosts) {
    if (h.local) continue;
    remote.push_back(h.name);
    if (output.find(h.name) != std::string::npos) named.push_back(h.name);
  }
  if (remote.size() > 4) remote = {"a remote host"};
  return "lost its connection to " + join(named.empty() ? remote : named, " or ");
}

}  // namespace hvd::launcher
