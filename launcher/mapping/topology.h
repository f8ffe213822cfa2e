/// @file topology.h — a machine by hwloc: this one, or one whose topology somebody exported.
#pragma once
#include <string>

#include "launcher/options/settings.h"
#include "placement/machine.h"

namespace hvd::launcher {

/// This machine's GPUs as CUDA_VISIBLE_DEVICES leaves them.
std::vector<placement::GpuInfo> usable_gpus(const Environment& environment);

/// This machine, its GPUs as CUDA_VISIBLE_DEVICES leaves them.  A few milliseconds: devices come from the driver's
/// files. No cores when hwloc cannot tell.
placement::Machine machine_here(const Environment& environment);

/// The machine in an hwloc 2 XML file (lstopo machine.xml).  Throws Error{usage} naming the file.  Read by a process of
/// its own: hwloc 2.9 crashes on some files that are none.
placement::Machine machine_in_file(const std::string& path);

}  // namespace hvd::launcher
