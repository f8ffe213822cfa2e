/// @file exchange.h — a machine as text, from a host that looked at itself to the one that asked.
#pragma once
#include <optional>
#include <string>

#include "place/machine.h"

namespace hvd::place {

/// Lines of words: core NODE CPU…, gpu INDEX NODE PCI UUID NAME…, nic NODE INFINIBAND NAME, way PCI PCI NAME, driver
/// VERSION, nccl VERSION, between a first and a last.
std::string machine_lines(const Machine& machine);

/// Reads it back; a login may print more before and after.  Nothing where it is not whole.
std::optional<Machine> read_machine(const std::string& text);

}  // namespace hvd::place
