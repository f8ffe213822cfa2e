/// @file mpi_plugin.h — libhvd_mpi.so: found next to libhvd.so, loaded only where an MPI launcher started us.
#pragma once
#include <memory>
#include <string>

#include "transport/transport.h"

namespace hvd::api {

class MpiPlugin {
 public:
  /// True when the environment says that mpirun, srun or the like started this process.
  static bool launched();
  /// The plugin lies next to this library (or has been loaded).
  static bool present();
  /// Initialises MPI when nobody has.  @p ranks: of the launch; nullptr: all.  Throws Error{unavailable}.
  static std::unique_ptr<transport::Transport> open(const int* ranks, int count, bool threads);
  /// MPI_Finalize if we initialised it.  Blocks until all ranks of the launch do the same.
  static void finalize();
};

}  // namespace hvd::api
