/// @file mismatch.h — do all ranks mean the same operation, and if not, what to tell the user.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "common/signature.h"

namespace hvd::negotiate {

/// One rank's view of an operation.
struct Claim {
  int rank = 0;
  Signature signature;
};

/// Empty when all claims agree, else one line: the tensor, what differs, both values and who says so.
std::string disagreement(const std::string& name, const std::vector<Claim>& claims);

}  // namespace hvd::negotiate
