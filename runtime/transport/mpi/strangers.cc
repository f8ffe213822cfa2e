#include "transport/mpi/strangers.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/network/listen_filter.h"
#include "common/log.h"
#include "options/configuration.h"
#include "transport/mpi/check.h"

namespace hvd::transport {

namespace {

/// Returns the addresses of all ranks' hosts.  Collective.  nullopt: a rank does not know its addresses.
std::optional<std::vector<Address>> addresses_of_all(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const auto own = own_addresses();
  const int bytes = own ? static_cast<int>(own->size() * sizeof(Address)) : -1;
  std::vector<int> counts(static_cast<std::size_t>(size)), places(counts.size());
  check(MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, comm), "MPI_Allgather");
  std::size_t whole = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] <= 0) return std::nullopt;
    places[i] = static_cast<int>(whole);
    whole += static_cast<std::size_t>(counts[i]);
  }
  std::vector<Address> all(whole / sizeof(Address));
  check(MPI_Allgatherv(own->data(), bytes, MPI_BYTE, all.data(), counts.data(), places.data(), MPI_BYTE, comm),
        "MPI_Allgatherv");
  return all;
}

}  // namespace

void keep_strangers_out(MPI_Comm comm, const std::vector<std::uint64_t>* before) {
  if (!options::flag_now("HVD_FILTER_PEERS")) return;
  const auto all = addresses_of_all(comm);
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  if (!all) {
    if (rank == 0) log_info("MPI's ports stay open to strangers: a rank does not know the addresses of its host");
  } else if (!before) {
    if (rank == 0) log_info("MPI's ports stay open to strangers: MPI was initialised before hvd.init()");
  } else {
    const int narrowed = restrict_listeners(*before, *all);
    log_info(std::to_string(narrowed) + " of MPI's ports closed to all but the job's hosts");
  }
}

}  // namespace hvd::transport
