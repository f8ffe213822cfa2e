/// @file topology.h — a machine by hwloc: this one, or one whose topology was exported to a file.
#pragma once
#include <string>

#include "launcher/options/settings.h"
#include "placement/machine.h"

namespace hvd::launcher {

/// This machine's GPUs that CUDA_VISIBLE_DEVICES does not hide.
std::vector<placement::GpuInfo> usable_gpus(const Environment& environment);

/// This machine, with the GPUs that CUDA_VISIBLE_DEVICES does not hide.  Takes a few milliseconds: the driver's files
/// name the devices.  Without cores when hwloc does not know them.
placement::Machine machine_here(const Environment& environment);

/// The machine in an hwloc 2 XML file (lstopo machine.xml).  Throws Error{usage} naming the file.  A child
/// process reads the file: hwloc 2.9 crashes on some malformed files.
placement::Machine machine_in_file(const std::string& path);

}  // namespace hvd::launcher
