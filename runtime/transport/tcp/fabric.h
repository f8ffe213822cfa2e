/// @file fabric.h — finds networks that MPI uses faster than TCP does.
#pragma once
#include <string>

namespace hvd::transport::tcp {

/// Returns the name of a device for a fast network.  InfiniBand, RoCE, EFA and Omni-Path devices need an active port. A
/// Slingshot device may be in any state.  Empty: this host has no such device.  @p sys_class: the path /sys/class.
std::string fabric_device(const std::string& sys_class);

}  // namespace hvd::transport::tcp
