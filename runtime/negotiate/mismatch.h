/// @file mismatch.h — compares the ranks' signatures of one operation, and words the error if they differ.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "common/signature.h"
#include "negotiate/rankset.h"

namespace hvd::negotiate {

/// An operation as several ranks describe it, all with the same signature.
struct Announcement {
  RankSet ranks;
  Signature signature;
  std::uint64_t executed = 0;  ///< commands that they had carried out; of several: see Announcements::add
};

/// All announcements of one name so far.  Equal signatures are one claim.
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
  /// Returns all claims and forgets them.  Equal signatures are one claim, whatever their age.
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
  /// The number of ranks; a rank with two claims counts twice.
  int count() const {
    int n = 0;
    for (const Announcement& claim : all) n += claim.ranks.count();
    return n;
  }
  /// Forgets claims of this group.
  void drop_group(std::uint64_t group) {
    std::erase_if(all, [&](const Announcement& c) { return c.signature.in_group(group); });
  }
  /// Forgets claims from before @p command that are not of @p group, and calls f(claim) for each.
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
