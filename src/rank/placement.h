/// @file placement.h — which logical CPUs this rank gets when hvdrun did not say.
///
/// Read from the affinity mask and sysfs rather than through hwloc, whose discovery
/// costs more than everything else that the guard does before the rank runs.
#pragma once
#include <string>
#include <vector>

#include "wire/manifest.h"

namespace hvd::rank {

/// One physical core: its logical CPUs that this process may use, in order.
using Core = std::vector<int>;

/// The cores that this process may use, neighbours next to each other.  @p sysfs is for tests.
std::vector<Core> allowed_cores(const std::string& sysfs = "/sys/devices/system/cpu");

/// An equal share of @p cores for @p local_rank of @p local_size: whole cores, contiguous; the first
/// ones get one more.  Empty (do not bind) when there are more ranks than cores.
std::vector<int> share(const std::vector<Core>& cores, int local_rank, int local_size);

/// What to bind to and OMP_NUM_THREADS for it.
struct Binding {
  std::vector<int> cpus;  ///< empty: leave the mask as it is
  int threads = 1;
};
Binding plan_binding(const wire::RankManifest& m);

}  // namespace hvd::rank
