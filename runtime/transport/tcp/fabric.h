/// @file fabric.h — networks that MPI uses better than by TCP.
#pragma once
#include <string>

namespace hvd::transport::tcp {

/// A device of InfiniBand, RoCE, EFA, Omni-Path or Slingshot; empty: there is none that is up.  @p sys_class:
/// /sys/class.
std::string fabric_device(const std::string& sys_class);

}  // namespace hvd::transport::tcp
