/// @file gpu_aware.h — whether the MPI at hand takes pointers to the memory of NVIDIA's GPUs.
#pragma once

namespace hvd::transport {

/// Asked at run time: what this library was compiled against need not be what runs.  After MPI was initialised.
bool mpi_takes_device_memory();

}  // namespace hvd::transport
