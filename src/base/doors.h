/// @file doors.h — closes a process's listening sockets to other machines.
///
/// Open MPI's mpirun and its daemons listen on every address, whatever they are told, and act on what they receive;
/// hvdrun's own channel listens while guards are still to come.  Once nobody is to come any more, a packet filter on
/// the listening sockets drops what does not come from this machine: the kernel then does not even answer.  Connections
/// that stand are not touched.
#pragma once
#include <sys/types.h>

namespace hvd {

/// Closes all listening TCP sockets of a process, this one or another of this user, that other machines could reach.
/// @return how many were closed now; those that were closed before are counted again.  0 also where the kernel does
///   not let us (before Linux 5.6, or in a container without pidfd_getfd): there is no harm in asking.
int close_doors(pid_t pid) noexcept;

}  // namespace hvd
