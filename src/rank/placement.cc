#include "placement.h"

#include "place/share.h"

namespace hvd::rank {

place::Machine visible_machine(const Environment& mine) {
  place::Machine machine = place::this_machine();
  if (const auto visible = mine.find("CUDA_VISIBLE_DEVICES"); visible != mine.end())
    machine.gpus = place::visible_gpus(machine.gpus, visible->second);
  return machine;
}

Binding plan_binding(const wire::RankManifest& m, const Environment& mine) {
  const wire::Placement& plan = m.placement;
  Binding b;
  if (plan.planned) {
    b = {plan.cpus, plan.threads ? plan.threads : static_cast<int>(plan.cpus.size()), plan.gpu, plan.visible_gpus};
    if (!plan.gpu.empty())
      for (const place::Gpu& g : place::read_gpus())
        if (g.uuid == plan.gpu || g.pci == plan.gpu) b.gpu_pci = g.pci;
  } else {
    // hvdrun's word for this host (a manifest's) goes before the host's own.
    const place::Machine machine = visible_machine(m.env.contains("CUDA_VISIBLE_DEVICES") ? m.env : mine);
    const place::GpuMode mode = place::gpu_mode(plan.gpu_mode).value_or(place::GpuMode::all);
    const place::Share share =
        place::share_machine(machine, m.local_size, mode, plan.share_gpus)[static_cast<std::size_t>(m.local_rank)];
    b = {share.cpus, share.threads, "", place::visible_devices(share, mode)};
    if (share.gpu) b.gpu_pci = share.gpu->pci;
    if (share.gpu) b.gpu = share.gpu->uuid.empty() ? share.gpu->pci : share.gpu->uuid;
  }
  if (b.threads < 1) b.threads = 1;
  if (!plan.bind) b.cpus.clear();
  return b;
}

}  // namespace hvd::rank
