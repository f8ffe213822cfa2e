/// @file mismatch.h — do all ranks mean the same operation, and if not, what to tell the user.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "common/signature.h"
#include "negotiate/rankset.h"

namespace hvd::negotiate {

/// How some ranks, all alike, see an operation.
struct Announcement {
  RankSet ranks;
  Signature signature;
  std::uint64_t executed = 0;  ///< commands that they had carried out; of several: see Announcements::add
};

/// What all ranks have said so far about one name: equal signatures are one claim.
struct Announcements {
  std::vector<Announcement> all;

  /// @param failed  number of the command by which a group failed last: what is older is kept apart from what is
  /// younger
  void add(const Signature& signature, const RankSet& ranks, std::uint64_t executed, std::uint64_t failed) {
    for (Announcement& claim : all)
      if (claim.signature == signature && (claim.executed < failed) == (executed < failed))
        return claim.ranks.merge(ranks);
    all.push_back({ranks, signature, executed});
  }
  /// Equal signatures are one, whatever their age.
  std::vector<Announcement> take() {
    Announcements merged;
    for (const Announcement& c : all) merged.add(c.signature, c.ranks, 0, 0);
    all.clear();
    return std::move(merged.all);
  }
  RankSet ranks() const {
    RankSet everybody;
    for (const Announcement& claim : all) everybody.merge(claim.ranks);
    return everybody;
  }
  /// Ranks, those with two claims twice.
  int count() const {
    int n = 0;
    for (const Announcement& claim : all) n += claim.ranks.count();
    return n;
  }
  /// Forgets what was said as part of this group.
  void drop_group(std::uint64_t group) {
    std::erase_if(all, [&](const Announcement& c) { return c.signature.in_group(group); });
  }
  /// Forgets what was said before @p command, and not as part of @p group: calls f(claim) for it.
  template <class F>
  void drop_before(std::uint64_t command, std::uint64_t group, F&& f) {
    std::erase_if(all, [&](const Announcement& c) {
      const bool old = c.executed < command && !c.signature.in_group(group);
      if (old) f(c);
      return old;
    });
  }
};

/// @param claims  in the order of their lowest ranks.
/// Empty when all claims agree, else one line: the tensor, what differs, both values and who says so.
std::string disagreement(const std::string& name, const std::vector<Announcement>& claims);

}  // namespace hvd::negotiate
