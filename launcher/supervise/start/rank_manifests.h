/// @file rank_manifests.h — the manifests: what each rank's guard starts, and what each host's daemon serves.
#pragma once
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/job/script_servers.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/manifest/manifest.h"

namespace hvd::launcher {

struct ManifestFacts {
  std::string job_id;
  std::vector<std::string> environment;  ///< "NAME=value", as job_environment() has it
  bool results = false;                  ///< hvdrun collects the ranks' results
  bool timeline = false;                 ///< hvdrun writes the job's timeline
  const ScriptServers& servers;
};

/// The manifest of one rank of @p job's map.  Pure.
wire::RankManifest rank_manifest(const Job& job, const MappedRank& rank, const ManifestFacts& facts);
/// [np], by rank.  Pure.  The shares of @p job are known where its machines are (share_out()).
std::vector<wire::RankManifest> rank_manifests(const Job& job, const ManifestFacts& facts);

/// The manifest for hvdrun's own daemons: the ranks of each host, and a PMIx namespace that no stranger can guess.
wire::DaemonManifest daemon_manifest(const Job& job, const std::string& job_id);

}  // namespace hvd::launcher
