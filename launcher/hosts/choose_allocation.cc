#include "launcher/hosts/choose_allocation.h"

#include <algorithm>

#include "base/error.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/hosts/parse_hosts.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_hostfile_bytes = 16u << 20;

}  // namespace

AllocationChoice choose_allocation(const AllocationSources& from) {
  if (from.np && *from.np < 1)
    throw Error(Code::usage, "-np", formatted("there must be at least 1 rank, not {}", *from.np),
                "write for example -np 2");
  AllocationChoice choice;
  const bool given = !from.hosts.empty() || !from.hostfile.empty() || from.explicitly;
  if (given) {
    choice.allocation =
        !from.hosts.empty() ? parse_hosts(from.hosts)
        : !from.hostfile.empty()
            ? parse_hostfile(read_trusted(from.hostfile, most_hostfile_bytes, from.by_anybody), from.hostfile)
            : *from.explicitly;
    choice.why = "given";
    if (from.found) choice.why += "; " + from.found->source + " is there too, but given beats found";
  } else if (from.found) {
    choice.allocation = *from.found;
    choice.why = "found in the environment; no hosts were given";
  } else {
    const int slots = from.np.value_or(std::max(1, from.gpus));
    choice.allocation = {{{"localhost", slots, "default"}}, "localhost (default)", {}};
    choice.why = from.np         ? "no hosts were given, and no allocation was found"
                 : from.gpus > 0 ? "neither ranks nor hosts were given: one rank for each GPU"
                                 : "neither ranks nor hosts were given, and there is no GPU: one rank";
  }
  const long long slots = choice.allocation.total_slots();
  choice.np = from.np.value_or(static_cast<int>(std::min(slots, 1LL << 20)));
  if (from.least && slots >= *from.least) choice.np = static_cast<int>(std::min<long long>(choice.np, slots));
  if (choice.np > slots)
    throw Error(Code::usage, "-np",
                formatted("{} asked for, but {} has only {}", count_of(choice.np, "rank"), choice.allocation.source,
                          count_of(slots, "slot")),
                given ? formatted("give more slots (host:{}) or a smaller -np", choice.np)
                      : "ask for more there, or give a smaller -np or hosts of your own (-H)");
  return choice;
}

}  // namespace hvd::launcher
