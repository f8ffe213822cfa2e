/// @file between_hosts.h — what tensors travel by between hosts: MPI, or TCP of our own.
#pragma once
#include <memory>

#include "core/config.h"
#include "transport/transport.h"

namespace hvd::api {

/// @p mpi itself, or TCP that @p mpi has brought together: as HVD_TRANSPORT says.  auto: TCP, unless MPI has a fabric
/// on some host, HOROVOD_CPU_OPERATIONS says MPI, or hosts cannot connect to one another.  Collective over the ranks of
/// @p mpi, which all choose alike.  Throws Error: usage, unavailable, timeout.
std::unique_ptr<transport::Transport> between_hosts(std::unique_ptr<transport::Transport> mpi,
                                                    const core::Config& config);

}  // namespace hvd::api
