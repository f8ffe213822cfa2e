#include "core/engine/thread_cores.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "common/log.h"

namespace hvd::core {
namespace {

/// Parses HOROVOD_THREAD_AFFINITY, such as "0,2,4,6".  Throws Error{usage}.
std::vector<int> cores_named(const std::string& text) {
  std::vector<int> cores;
  for (const std::string& word : split(text, ',')) {
    const auto core = to_integer(std::string(trim(word)));
    if (!core || *core < 0 || *core >= CPU_SETSIZE)
      throw Error(Code::usage, "HOROVOD_THREAD_AFFINITY", "'" + text + "' is not a list of cores",
                  "write for example 0,2,4,6");
    cores.push_back(static_cast<int>(*core));
  }
  return cores;
}

}  // namespace

std::optional<cpu_set_t> thread_cores(const Config& config, const World& world) {
  if (!config.given("HOROVOD_THREAD_AFFINITY")) return std::nullopt;
  const std::vector<int> named = cores_named(config.text("HOROVOD_THREAD_AFFINITY"));
  const auto local = static_cast<std::size_t>(world.local_rank());
  const char* const name = "HOROVOD_THREAD_AFFINITY";
  if (named.size() < static_cast<std::size_t>(world.local_size())) {  // Horovod binds no thread then
    if (local == 0)
      log_warning(std::string(name) +
                  " lists too few cores: " + count_of(static_cast<long long>(named.size()), "core") + " for " +
                  std::to_string(world.local_size()) + " ranks of a host, so it has no effect here");
    return std::nullopt;
  }
  const int core = named[local];
  if (core >= sysconf(_SC_NPROCESSORS_CONF))
    throw Error(Code::usage, name, "there is no core " + std::to_string(core) + " on this host");
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  CPU_SET(static_cast<std::size_t>(core), &wanted);
  return wanted;
}

}  // namespace hvd::core
