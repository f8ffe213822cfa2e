#include "launcher/supervise/rank_manifests.h"

namespace hvd::launcher {

std::vector<wire::RankManifest> rank_manifests(const Job& job, const ManifestFacts& facts) {
  std::vector<wire::RankManifest> all;
  for (const MappedRank& p : job.map.ranks) {
    wire::RankManifest m;
    m.job = facts.job_id;
    m.rank = p.rank, m.size = static_cast<int>(job.map.ranks.size());
    m.local_rank = p.local_rank, m.local_size = p.local_size;
    m.cross_rank = p.cross_rank, m.cross_size = p.cross_size;
    m.host = job.map.host_of(p.rank).name;
    m.cwd = job.cwd;
    m.python = job.python;
    m.env = rank_environment(job, p, facts.environment);
    m.payload = job.payload.wire;
    if (p.share) {
      const placement::RankResources& share = *p.share;
      const auto mode = *placement::gpu_mode(job.settings.text("gpus"));
      m.placement = {true, share.cpus, share.threads, "", placement::visible_devices(share, mode)};
      if (share.gpu) m.placement.gpu = share.gpu->uuid.empty() ? share.gpu->pci : share.gpu->uuid;
    }
    m.placement.gpu_mode = job.settings.text("gpus");
    m.placement.share_gpus = job.settings.flag("share-gpus");
    m.placement.bind = job.settings.flag("bind");
    m.grace_seconds = job.settings.number("grace");
    m.collect_results = facts.results && job.settings.integer("results-of").value_or(p.rank) == p.rank;
    m.timeline = facts.timeline;
    m.trusted_only = !job.settings.flag("allow-writable");
    for (const uid_t uid : job.software_owners) m.software_owners.push_back(static_cast<int>(uid));
    m.input = job.settings.integer("stdin") == p.rank;
    all.push_back(std::move(m));
  }
  return all;
}

}  // namespace hvd::launcher
