#include "rank/launch/binding.h"

#include "placement/rank_resources.h"

namespace hvd::rank {

placement::Machine visible_machine(const Environment& mine) {
  placement::Machine machine = placement::this_machine();
  if (const auto visible = mine.find("CUDA_VISIBLE_DEVICES"); visible != mine.end())
    machine.gpus = placement::visible_gpus(machine.gpus, visible->second);
  return machine;
}

Binding plan_binding(const wire::RankManifest& m, const Environment& mine) {
  const wire::Placement& plan = m.placement;
  Binding b;
  if (plan.planned) {
    b = {plan.cpus, plan.threads ? plan.threads : static_cast<int>(plan.cpus.size()), plan.gpu, plan.visible_gpus,
         plan.memory_node};
    if (!plan.gpu.empty())
      for (const placement::GpuInfo& g : placement::read_gpus())
        if (g.uuid == plan.gpu || g.pci == plan.gpu) b.gpu_pci = g.pci;
  } else {
    // The value in the rank's manifest, which hvdrun sends, precedes the host's value.
    const placement::Machine machine = visible_machine(m.env.contains("CUDA_VISIBLE_DEVICES") ? m.env : mine);
    const placement::GpuMode mode = placement::gpu_mode(plan.gpu_mode).value_or(placement::GpuMode::all);
    const placement::RankResources share =
        placement::divide_machine(machine, m.local_size, mode, plan.share_gpus)[static_cast<std::size_t>(m.local_rank)];
    b = {share.cpus, share.threads, "", placement::visible_devices(share, mode), share.memory_node};
    if (share.gpu) b.gpu_pci = share.gpu->pci;
    if (share.gpu) b.gpu = share.gpu->uuid.empty() ? share.gpu->pci : share.gpu->uuid;
  }
  if (b.threads < 1) b.threads = 1;
  if (!plan.bind) b.cpus.clear(), b.memory_node = -1;
  return b;
}

}  // namespace hvd::rank
