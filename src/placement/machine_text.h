/// @file machine_text.h — a machine as text, from a host that looked at itself to the one that asked.
#pragma once
#include <optional>
#include <string>

#include "placement/machine.h"

namespace hvd::placement {

/// Lines of words: core NODE CPU…, gpu INDEX NODE PCI UUID NAME…, nic NODE INFINIBAND NAME, way PCI PCI NAME, driver
/// VERSION, nccl VERSION, between a first and a last.
std::string machine_to_text(const Machine& machine);

/// Reads it back; a login may print more before and after.  Nothing where it is not whole.
std::optional<Machine> machine_from_text(const std::string& text);

}  // namespace hvd::placement
