/// @file checked_request.h — from a C request to a checked one.
#pragma once
#include "core/set.h"
#include "core/world.h"
#include "hvd/hvd.h"

namespace hvd::core {

/// @p world: of the process set.  Throws Error{usage} that names the operation and the field.  The name in the result
/// points into @p request.
CheckedRequest check_request(const hvd_request* request, const World& world);

/// Makes @p requests one group: they become ready together.
void make_group(std::vector<CheckedRequest>& requests);

}  // namespace hvd::core
