/// @file machine_text.h — a Machine as text, to send it from one host to another.
#pragma once
#include <optional>
#include <string>

#include "placement/machine.h"

namespace hvd::placement {

/// Lines of words: core NODE CPU…, gpu INDEX NODE PCI UUID NAME…, nic NODE INFINIBAND NAME, way PCI PCI NAME, driver
/// VERSION, nccl VERSION.  A first line precedes them, and a last line follows.
std::string machine_to_text(const Machine& machine);

/// Parses the text of machine_to_text().  Ignores other lines before and after it, which a login may print.  Nothing if
/// the text is incomplete or malformed.
std::optional<Machine> machine_from_text(const std::string& text);

}  // namespace hvd::placement
