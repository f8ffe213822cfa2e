/// @file fabric.h — finds networks that MPI uses faster than TCP does.
#pragma once
#include <string>

namespace hvd::transport::tcp {

/// Returns the name of an InfiniBand, RoCE, EFA or Omni-Path device with an active port, or of a Slingshot device in
/// any state.  Empty: this host has no such device.  @p sys_class: the path /sys/class.
std::string fabric_device(const std::string& sys_class);

}  // namespace hvd::transport::tcp
