/// @file mismatch.h — compares the ranks' signatures of one operation, and writes the error message if they differ.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "common/signature.h"
#include "negotiate/rankset.h"

namespace hvd::negotiate {

/// One signature of an operation, and the ranks that have announced the operation with it: a claim.
struct Announcement {
  RankSet ranks;
  Signature signature;
  std::uint64_t executed = 0;  ///< commands that the first of these ranks to announce had carried out
};

/// The announcements of one name that have arrived.  Ranks with equal signatures share a claim.
struct Announcements {
  std::vector<Announcement> all;

  /// Adds the announcement of @p ranks.  Claims from before command @p failed stay apart from later ones.
  /// @param executed  the number of commands that these ranks had carried out
  /// @param failed    number of the last command `fail`
  void add(const Signature& signature, const RankSet& ranks, std::uint64_t executed, std::uint64_t failed) {
    for (Announcement& claim : all)
      if (claim.signature == signature && (claim.executed < failed) == (executed < failed))
        return claim.ranks.merge(ranks);
    all.push_back({ranks, signature, executed});
  }
  /// Returns all claims and forgets them.  Claims with equal signatures are merged, regardless of their age.
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
  /// Forgets the claims of @p group.
  void drop_group(std::uint64_t group) {
    std::erase_if(all, [&](const Announcement& c) { return c.signature.in_group(group); });
  }
  /// Forgets the claims outside @p group that are older than @p command, and calls f(claim) for each.
  template <class F>
  void drop_before(std::uint64_t command, std::uint64_t group, F&& f) {
    std::erase_if(all, [&](const Announcement& c) {
      const bool old = c.executed < command && !c.signature.in_group(group);
      if (old) f(c);
      return old;
    });
  }
};

/// "allreduce of [16] float32", "barrier".
std::string describe(const Signature& signature);
/// Returns one line: the tensor, the field that differs, and the ranks with each value.  Empty if all claims agree.
/// @param claims  in the order of their lowest ranks
std::string disagreement(const std::string& name, const std::vector<Announcement>& claims);

}  // namespace hvd::negotiate
