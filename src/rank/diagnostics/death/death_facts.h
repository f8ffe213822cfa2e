/// @file death_facts.h — facts of the host that explain a rank's death further than its exit status does.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "wire/messages/death.h"

namespace hvd::rank {

/// "/dev/shm is full (64 MiB)" when less than 1 % or 1 MiB of it is free; else empty.  Full shared memory is a usual
/// cause of SIGBUS.
std::string full_shared_memory(const std::string& folder = "/dev/shm");

/// A C++ exception that no code caught, from libstdc++'s message in the rank's last lines.  For example "C++ exception
/// std::runtime_error: no such layer".  Empty: none.
std::string thrown_exception(const std::vector<std::string>& tail);

/// The last line "Fatal Python error: ..." of the rank's last lines, or faulthandler's "Timeout (0:00:10)!".  Empty:
/// none.
std::string fatal_python_error(const std::vector<std::string>& tail);

/// "it called MPI_Abort" if Open MPI's message about that is among the rank's last lines.  Empty: it is not.
std::string mpi_abort(const std::vector<std::string>& tail);

/// A traceback of the error in the program's own syntax that ends @p tail.  Python prints such an error without a
/// header. Empty: @p tail does not end so.
std::string syntax_error_traceback(const std::vector<std::string>& tail);

/// The limit (ulimit) that the rank reached, by its signal.  The guard has the same limits as the rank.  Empty: none.
std::string reached_limit(const wire::DeathRecord& r);

/// Advice if @p words contain the error of Open MPI 4's mpirun that a rank has started; else empty.
std::string mpirun_in_a_rank(const std::string& words);

/// Folders of the mounted file systems in @p mounts (/proc/self/mounts) that lie on this host and can be written.  A
/// file system of a network is left out: a call to a dead server never returns.  Pure.
std::vector<std::string> local_mounts(const std::string& mounts);

/// "/tmp is full (64 MiB)" for each full folder, with advice.  Looks at the rank's usual folders and at local_mounts().
/// Empty: none is full.
std::string full_folders(const std::string& cwd, const std::string& temporary);

/// Returns the place of core files by the kernel's core_pattern: "core in /work" or "piped to /usr/share/apport".
/// @param cwd  working folder of the rank
std::string core_place(const std::string& pattern, const std::string& cwd);
std::string core_pattern();

/// The NVIDIA driver's last Xid for the GPU at @p pci, as the driver wrote it.  Only Xids since @p since_us count
/// (microseconds on the kernel log's clock).  Empty: there is none, or the log cannot be read.
std::string xid_of(const std::string& pci, std::int64_t since_us);
/// Like xid_of(), for one record of /dev/kmsg.  Pure.
std::string xid_in(const std::string& record, const std::string& pci, std::int64_t since_us);

}  // namespace hvd::rank
