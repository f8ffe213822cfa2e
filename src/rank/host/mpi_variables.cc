#include "rank/host/mpi_variables.h"

#include <cstdlib>
#include <vector>

#include "base/environment.h"

namespace hvd::rank {

void forget_outer_launcher() {
  std::vector<std::string> names;
  for (char** entry = environment_block(); *entry; ++entry) {
    const std::string_view line = *entry, name = line.substr(0, line.find('='));
    if (name.ends_with("_PREFIX") || (name.starts_with("OMPI_MCA_") && name != "OMPI_MCA_ess")) continue;
    for (const char* prefix : {"PMIX_", "PMI_", "OMPI_", "OPAL_", "ORTE_", "PRTE_"})
      if (name.starts_with(prefix)) names.emplace_back(name);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

std::string mpi_variables(const wire::DaemonManifest& manifest, int rank, int local_rank, int ranks_here) {
  std::size_t size = 0;
  for (const auto& host : manifest.hosts) size += host.ranks.size();
  const std::string all = std::to_string(size), here = std::to_string(ranks_here), local = std::to_string(local_rank);
  std::vector<std::string> lines{"OMPI_COMM_WORLD_SIZE=" + all, "OMPI_UNIVERSE_SIZE=" + all,
                                 "OMPI_COMM_WORLD_LOCAL_SIZE=" + here, "OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
                                 "OMPI_COMM_WORLD_LOCAL_RANK=" + local, "OMPI_COMM_WORLD_NODE_RANK=" + local,
                                 // Without these two, each process of 4.1 silently becomes a world of size 1.
                                 "OMPI_MCA_schizo=ompi", "OMPI_MCA_ess=^singleton"};
  if (manifest.oversubscribed) lines.emplace_back("OMPI_MCA_mpi_oversubscribe=1");
  std::string text;
  for (const std::string& line : lines) text += line + '\0';
  return text;
}

std::string no_mpi(std::string_view reason) { return "OMPI_MCA_pml=" + std::string(reason) + '\0'; }

}  // namespace hvd::rank
