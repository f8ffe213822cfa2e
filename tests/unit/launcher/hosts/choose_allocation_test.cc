#include "launcher/hosts/choose_allocation.h"

#include <doctest/doctest.h>

#include "../errors.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {
AllocationSources asked(std::optional<int> np, const std::string& hosts = {}, int gpus = 0) {
  AllocationSources from;
  from.np = np, from.hosts = hosts, from.gpus = gpus;
  return from;
}
}  // namespace

TEST_CASE("hosts: the number of ranks") {
  CHECK(choose_allocation(asked(2)).allocation.hosts[0].slots == 2);
  CHECK(choose_allocation(asked(std::nullopt, "a:2,b:3")).np == 5);
  CHECK(error_of([] { choose_allocation(asked(4, "a:2,b:1")); }) ==
        "-np: 4 ranks asked for, but -H has only 3 slots (give more slots (host:4) or a smaller -np)");
  CHECK(error_of([] { choose_allocation(asked(0)); }).starts_with("-np: there must be at least 1 rank, not 0"));
  CHECK(
      error_of([] { choose_allocation(asked(-3, "a:1")); }).starts_with("-np: there must be at least 1 rank, not -3"));
  CHECK(choose_allocation(asked(std::nullopt)).np == 1);
  CHECK(choose_allocation(asked(std::nullopt, "", 4)).np == 4);
}

TEST_CASE("hosts: given beats found, found beats localhost") {
  AllocationSources from = asked(std::nullopt, "a:2");
  from.found = Allocation{{{"n1", 3, ""}}, "Slurm job 7", {}};
  const AllocationChoice given = choose_allocation(from);
  CHECK(given.allocation.source == "-H");
  CHECK(given.why == "given; Slurm job 7 is there too, but given beats found");
  from.hosts.clear();
  const AllocationChoice found = choose_allocation(from);
  CHECK(found.np == 3);
  CHECK(found.allocation.source == "Slurm job 7");
  from.np = 4;
  CHECK(error_of([&] { choose_allocation(from); }) ==
        "-np: 4 ranks asked for, but Slurm job 7 has only 3 slots (ask for more there, or give a smaller -np or hosts "
        "of your own (-H))");
}
