/// @file open_mpi.h — the Open MPI of this host: mpirun, and the libraries that host daemons take.
#pragma once
#include <functional>
#include <string>

namespace hvd::launcher {

/// The two command lines that Open MPI has: ORTE's (4.x) and PRRTE's (5.x).
enum class Flavour { openmpi4, openmpi5 };

struct Mpirun {
  std::string program;  ///< absolute
  Flavour flavour = Flavour::openmpi4;
  std::string library_folder;  ///< where its libmpi.so.40 is, if the system's loader does not look there; else empty
};

/// Finds mpirun, and tells its flavour by the files around it.  In an unusual installation, runs `mpirun --version`.
/// @param wanted    --mpirun or HVD_MPIRUN; empty: the first in PATH, then the one in @p own_folder
/// @param look      called with mpirun's path before mpirun is run; may throw
/// Throws Error{unavailable} with advice on the package to install.  Throws Error{usage} for another MPI's mpirun.
Mpirun find_mpirun(const std::string& wanted, const std::string& search_path, const std::string& own_folder,
                   const std::function<void(const std::string&)>& look = {});

}  // namespace hvd::launcher
