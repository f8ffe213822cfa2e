/// @file mpi_plugin.h — libhvd_mpi.so, which lies next to libhvd.so.
///
/// Loaded only if an MPI launcher has started this process, or if the ranks have chosen MPI as their transport.
#pragma once
#include <memory>
#include <string>

#include "transport/transport.h"

namespace hvd::api {

class MpiPlugin {
 public:
  /// True if the environment shows that mpirun, srun or a similar launcher started this process.
  static bool launched();
  /// True if the plugin lies next to this library, or is loaded.
  static bool present();
  /// Loads the plugin, and initialises MPI unless the program has.  @p ranks: [count] of the launch; nullptr: all.
  /// @p threads: ask MPI for calls from several threads.  Throws Error: unavailable, internal.
  static std::unique_ptr<transport::Transport> open(const int* ranks, int count, bool threads);
  /// Calls MPI_Finalize if the plugin has initialised MPI.  Blocks until all ranks of the launch do the same.
  static void finalize();
};

}  // namespace hvd::api
