#include "core/config.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "common/types.h"

namespace hvd::core {
namespace {

double number(const char* name, double fallback, double least, double most) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  char* end = nullptr;
  const double x = std::strtod(text, &end);
  if (*end != 0 || !(x >= least && x <= most))
    throw Error(
        Code::usage, name,
        "'" + std::string(text) + "' is not a number from " + std::to_string(least) + " to " + std::to_string(most));
  return x;
}

bool flag(const char* name, bool fallback) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  std::string t = text;
  for (char& c : t) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (t == "1" || t == "true" || t == "yes" || t == "on") return true;
  if (t == "0" || t == "false" || t == "no" || t == "off") return false;
  throw Error(Code::usage, name, "'" + std::string(text) + "' is not a boolean", "write 1 or 0");
}

/// True for MPI, false for NCCL; nullopt: it says nothing.
std::optional<bool> names_mpi(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  const std::string what = text;
  if (what == "NCCL" || what == "nccl") return false;
  if (what == "MPI" || what == "mpi") return true;
  throw Error(Code::usage, name, "'" + what + "' is neither NCCL nor MPI");
}

/// NCCL moves tensors on GPUs unless Horovod's variables name MPI, for all operations or for one (which then counts),
/// or choose only operations on the CPU.  MPI here takes no device memory: such tensors go through host memory.
void choose_for_gpus(Config& c) {
  const std::pair<Kind, const char*> kinds[] = {{Kind::allreduce, "HOROVOD_GPU_ALLREDUCE"},
                                                {Kind::allgather, "HOROVOD_GPU_ALLGATHER"},
                                                {Kind::broadcast, "HOROVOD_GPU_BROADCAST"},
                                                {Kind::alltoall, "HOROVOD_GPU_ALLTOALL"},
                                                {Kind::reducescatter, "HOROVOD_GPU_REDUCESCATTER"}};
  const std::optional<bool> all = names_mpi("HOROVOD_GPU_OPERATIONS");
  bool any = all.has_value();
  std::uint32_t every = 0;
  for (const auto& [kind, name] : kinds) {
    const std::optional<bool> one = names_mpi(name);
    any |= one.has_value();
    every |= bit_of(kind);
    if (one.value_or(all.value_or(false))) c.gpu_through_host |= bit_of(kind);
  }
  const char* cpu = std::getenv("HOROVOD_CPU_OPERATIONS");
  if (!any && cpu && *cpu) c.gpu_through_host = every;
}

/// "0,2,4,6"
std::vector<int> cores(const char* name) {
  std::vector<int> out;
  const char* text = std::getenv(name);
  if (!text || !*text) return out;
  for (const std::string& word : split(text, ',')) {
    const auto core = to_integer(std::string(trim(word)));
    if (!core || *core < 0 || *core >= CPU_SETSIZE)
      throw Error(Code::usage, name, "'" + std::string(text) + "' is not a list of cores", "write for example 0,2,4,6");
    out.push_back(static_cast<int>(*core));
  }
  return out;
}

}  // namespace

Config Config::from_environment() {
  Config c;
  c.cache_capacity = static_cast<std::uint32_t>(number("HOROVOD_CACHE_CAPACITY", c.cache_capacity, 0, 1 << 20));
  c.fusion_bytes =
      static_cast<std::int64_t>(number("HOROVOD_FUSION_THRESHOLD", static_cast<double>(c.fusion_bytes), 0, 1e15));
  c.hold_ns = static_cast<std::int64_t>(number("HOROVOD_CYCLE_TIME", 1, 0, 1e6) * 1e6);
  c.stall_warn_ns = static_cast<std::int64_t>(number("HOROVOD_STALL_CHECK_TIME_SECONDS", 60, 0, 1e9) * 1e9);
  if (flag("HOROVOD_STALL_CHECK_DISABLE", false)) c.stall_warn_ns = 0;
  c.stall_shutdown_ns = static_cast<std::int64_t>(number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0, 0, 1e9) * 1e9);
  c.stall_tell_ns = std::min(c.stall_tell_ns, c.stall_warn_ns);
  c.link = static_cast<int>(number("HVD_LINK_FD", -1, -1, 1 << 20));
  c.tally = static_cast<int>(number("HVD_STATUS_FD", -1, -1, 1 << 20));
  c.start_limit_seconds = number("HVD_INIT_TIMEOUT", c.start_limit_seconds, 0.001, 1e9);
  c.ranks_per_node = static_cast<int>(number("HVD_RANKS_PER_NODE", 0, 0, 1 << 20));
  if (const char* backends = std::getenv("HVD_BACKENDS")) c.backends = backends;
  c.arity = static_cast<int>(number("HVD_TREE_ARITY", 0, 0, 1 << 10));
  flag("HVD_DETERMINISTIC",
       false);  // a promise that is always kept (docs/decisions/22-one-order.md); wrong text is an error
  choose_for_gpus(c);
  c.torch_memory = flag("HVD_TORCH_MEMORY", true);
  c.nccl_wide = flag("HVD_NCCL_WIDE", false);
  c.nccl_float8 = flag("HVD_NCCL_FLOAT8", false);
  c.nccl_streams = static_cast<int>(number("HOROVOD_NUM_NCCL_STREAMS", 1, 1, 16));
  c.sums_by_nodes = flag("HOROVOD_HIERARCHICAL_ALLREDUCE", false) | flag("HOROVOD_TORUS_ALLREDUCE", false);
  c.gathers_by_nodes = flag("HOROVOD_HIERARCHICAL_ALLGATHER", false);
  c.affinity = cores("HOROVOD_THREAD_AFFINITY");
  c.mpi_threads = !flag("HOROVOD_MPI_THREADS_DISABLE", false);
  return c;
}

}  // namespace hvd::core
