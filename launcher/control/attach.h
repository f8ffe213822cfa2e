/// @file attach.h — hvdrun attach: a console of Python's debugger in a rank of this host.
///
/// This process listens on a unix socket named after the rank's process, and sends the rank a signal, which only the
/// job's owner can.  The rank calls back (src/python/hvd/_attach.py).  Each end asks the kernel who the other is before
/// it reads a byte.
#pragma once
#include <string>

namespace hvd::launcher {

/// Returns when the console has ended.  The rank goes on then, also when this process is killed.
/// @param folder  the job's.
/// Throws Error{usage, unavailable}; Error{timeout} with the rank's stack on stderr when its main thread does not come.
int attach_to_rank(const std::string& folder, long long rank);

}  // namespace hvd::launcher
