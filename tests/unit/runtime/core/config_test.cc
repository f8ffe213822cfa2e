/// The settings that the environment has.
#include "core/settings/config.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "common/types.h"
#include "gpu/nccl/through_host.h"

using namespace hvd;

namespace {

using Variables = std::vector<std::pair<const char*, const char*>>;

core::Config config_with(const Variables& variables) {
  struct Restore {
    const Variables& of;
    ~Restore() {
      for (const auto& [name, value] : of) unsetenv(name);
    }
  } restore{variables};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  return core::Config::of_environment(options::Component::libhvd);
}

std::string refused(const Variables& variables) {
  try {
    config_with(variables);
  } catch (const Error& e) {
    CHECK(e.code == Code::usage);
    return e.what();
  }
  return "it is taken";
}

}  // namespace

TEST_CASE("the environment: who moves tensors on GPUs") {
  const std::uint32_t all = bit_of(Kind::allreduce) | bit_of(Kind::allgather) | bit_of(Kind::broadcast) |
                            bit_of(Kind::alltoall) | bit_of(Kind::reducescatter);
  CHECK(nccl::kinds_through_host(config_with({})) == 0);
  CHECK(nccl::kinds_through_host(config_with({{"HOROVOD_GPU_OPERATIONS", "NCCL"}})) == 0);
  CHECK(nccl::kinds_through_host(config_with({{"HOROVOD_GPU_OPERATIONS", "MPI"}})) == all);
  CHECK(nccl::kinds_through_host(config_with({{"HOROVOD_GPU_OPERATIONS", "mpi"}, {"HOROVOD_GPU_ALLREDUCE", "NCCL"}})) ==
        (all & ~bit_of(Kind::allreduce)));
  CHECK(nccl::kinds_through_host(config_with({{"HOROVOD_GPU_ALLTOALL", "MPI"}, {"HOROVOD_GPU_BROADCAST", ""}})) ==
        bit_of(Kind::alltoall));
  CHECK(nccl::kinds_through_host(config_with({{"HOROVOD_CPU_OPERATIONS", "MPI"}})) == all);
  CHECK(nccl::kinds_through_host(config_with({{"HOROVOD_CPU_OPERATIONS", "MPI"}, {"HOROVOD_GPU_ALLREDUCE", "NCCL"}})) ==
        0);
}

TEST_CASE("the environment: words that are none") {
  CHECK(refused({{"HOROVOD_GPU_ALLGATHER", "gloo"}}) == "HOROVOD_GPU_ALLGATHER: 'gloo' is not one of NCCL, MPI");
  CHECK(refused({{"HVD_NCCL_WIDE", "gloo"}}).starts_with("HVD_NCCL_WIDE: 'gloo' is not a boolean"));
}
