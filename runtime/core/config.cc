#include "core/config.h"

#include <algorithm>

#include "common/types.h"

namespace hvd::core {

std::uint32_t kinds_through_host(const Config& config) {
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

StallLimits StallLimits::of(const Config& config) {
  constexpr std::int64_t tell_ns = 5'000'000'000;
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  StallLimits limits;
  if (!config.flag("HOROVOD_STALL_CHECK_DISABLE"))
    limits.warn_ns = ns(config.number("HOROVOD_STALL_CHECK_TIME_SECONDS"));
  limits.tell_ns = std::min(tell_ns, limits.warn_ns);
  limits.shutdown_ns = ns(config.number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"));
  return limits;
}

}  // namespace hvd::core
