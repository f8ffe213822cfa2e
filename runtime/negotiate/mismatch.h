/// @file mismatch.h — do all ranks mean the same operation, and if not, what to tell the user.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "common/signature.h"
#include "negotiate/rankset.h"

namespace hvd::negotiate {

/// How some ranks, all alike, see an operation.
struct Claim {
  RankSet ranks;
  Signature signature;
};

/// What all ranks have said so far about one name: equal signatures are one claim.
struct Claims {
  std::vector<Claim> all;

  void add(const Signature& signature, const RankSet& ranks) {
    for (Claim& claim : all)
      if (claim.signature == signature) return claim.ranks.merge(ranks);
    all.push_back({ranks, signature});
  }
  RankSet ranks() const {
    RankSet everybody;
    for (const Claim& claim : all) everybody.merge(claim.ranks);
    return everybody;
  }
  /// Ranks, those with two claims twice.
  int count() const {
    int n = 0;
    for (const Claim& claim : all) n += claim.ranks.count();
    return n;
  }
  /// Forgets what was said as part of this group.
  void drop_group(std::uint64_t group) {
    std::erase_if(all, [&](const Claim& c) { return c.signature.group_size && c.signature.group == group; });
  }
};

/// @param claims  in the order of their lowest ranks.
/// Empty when all claims agree, else one line: the tensor, what differs, both values and who says so.
std::string disagreement(const std::string& name, const std::vector<Claim>& claims);

}  // namespace hvd::negotiate
