#include "gpu/nccl/through_host.h"

#include "common/types.h"

namespace hvd::nccl {

std::uint32_t kinds_through_host(const options::Configuration& config) {
  const struct {
    Kind kind;
    options::TextVariable variable;
  } kinds[] = {{Kind::allreduce, "HOROVOD_GPU_ALLREDUCE"},
               {Kind::allgather, "HOROVOD_GPU_ALLGATHER"},
               {Kind::broadcast, "HOROVOD_GPU_BROADCAST"},
               {Kind::alltoall, "HOROVOD_GPU_ALLTOALL"},
               {Kind::reducescatter, "HOROVOD_GPU_REDUCESCATTER"}};
  bool any = config.given("HOROVOD_GPU_OPERATIONS");
  std::uint32_t through_host = 0, all = 0;
  for (const auto& [kind, variable] : kinds) {
    any |= config.given(variable);
    all |= bit_of(kind);
    const std::string& chosen = config.given(variable) ? config.text(variable) : config.text("HOROVOD_GPU_OPERATIONS");
    if (chosen == "MPI") through_host |= bit_of(kind);
  }
  return !any && config.given("HOROVOD_CPU_OPERATIONS") ? all : through_host;
}

}  // namespace hvd::nccl
