/// @file rankset.h — a set of ranks in compact form, such as the ranks of a merged record.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "negotiate/command.h"

namespace hvd::negotiate {

/// Sorted runs that do not touch.  Ranks of neighbouring nodes mostly form one run, so a set takes a few bytes.
class RankSet {
 public:
  struct Run {
    int first, last;  ///< both included
    bool operator==(const Run&) const = default;
  };
  RankSet() = default;
  explicit RankSet(int rank) : runs_{{rank, rank}} {}
  /// @param ranks  in any order, duplicates allowed
  static RankSet of(std::vector<int> ranks) {
    RankSet set;
    std::sort(ranks.begin(), ranks.end());
    for (int r : ranks) set.append({r, r});
    return set;
  }
  static RankSet range(int first, int last) {
    RankSet set;
    if (first <= last) set.runs_.push_back({first, last});
    return set;
  }

  void merge(const RankSet& other) {
    if (other.runs_.empty()) return;
    if (runs_.empty() || other.runs_.front().first >= runs_.back().first) {  // the usual case: ranks arrive in order
      for (const Run& run : other.runs_) append(run);
      return;
    }
    const std::vector<Run> mine = std::move(runs_);
    runs_.clear();
    std::size_t i = 0, j = 0;
    while (i < mine.size() || j < other.runs_.size()) {
      const bool take = j == other.runs_.size() || (i < mine.size() && mine[i].first < other.runs_[j].first);
      append(take ? mine[i++] : other.runs_[j++]);
    }
  }
  /// The ranks of [0, size) that are not in the set.
  RankSet complement(int size) const {
    RankSet set;
    int next = 0;
    for (const Run& run : runs_) {
      if (run.first > next) set.runs_.push_back({next, run.first - 1});
      next = run.last + 1;
    }
    if (next < size) set.runs_.push_back({next, size - 1});
    return set;
  }
  /// The set with @p to[r] in place of each rank r.  If @p to is empty, the set itself.
  RankSet mapped(const std::vector<int>& to) const {
    if (to.empty()) return *this;
    std::vector<int> ranks;
    for (const Run& run : runs_)
      for (int r = run.first; r <= run.last; ++r) ranks.push_back(to[static_cast<std::size_t>(r)]);
    return of(std::move(ranks));
  }
  bool contains(int rank) const {
    return std::any_of(runs_.begin(), runs_.end(), [rank](const Run& r) { return r.first <= rank && rank <= r.last; });
  }
  int count() const {
    int n = 0;
    for (const Run& run : runs_) n += run.last - run.first + 1;
    return n;
  }
  bool empty() const { return runs_.empty(); }
  int first() const { return runs_.front().first; }
  bool operator==(const RankSet&) const = default;

  /// The first @p most ranks.
  std::vector<int> listed(std::size_t most) const {
    std::vector<int> ranks;
    for (const Run& run : runs_)
      for (int r = run.first; r <= run.last && ranks.size() < most; ++r) ranks.push_back(r);
    return ranks;
  }

  /// "rank 3" or "ranks 0-2, 5".  After @p most runs the text ends with the number of ranks left: ", and 7 more".
  std::string text(std::size_t most = 32) const {
    std::string text = count() == 1 ? "rank " : "ranks ";
    int left = count();
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (i == most) return text + ", and " + std::to_string(left) + " more";
      const Run& run = runs_[i];
      if (i) text += ", ";
      text += std::to_string(run.first);
      if (run.last > run.first) text += "-" + std::to_string(run.last);
      left -= run.last - run.first + 1;
    }
    return text;
  }

  /// Writes varints: the number of runs, then for each run the gap before it and its length minus 1.
  void put(ByteWriter& w) const {
    w.varint(runs_.size());
    int next = 0;
    for (const Run& run : runs_) {
      w.varint(static_cast<std::uint64_t>(run.first - next)).varint(static_cast<std::uint64_t>(run.last - run.first));
      next = run.last + 1;
    }
  }
  /// Reads the bytes of put().  Throws std::runtime_error if the set has ranks outside @p among.
  static RankSet get(ByteReader& r, const RankSet& among) {
    RankSet set, both = among;
    const std::uint64_t end = among.runs_.empty() ? 0 : static_cast<std::uint64_t>(among.runs_.back().last) + 1;
    std::uint64_t next = 0;
    for (std::uint64_t n = r.varint(); n > 0; --n) {
      const std::uint64_t gap = r.varint(), more = r.varint();
      if (gap >= end - next || more >= end - next - gap)
        throw std::runtime_error("negotiation: ranks that do not exist");
      next += gap + more + 1;
      set.append({static_cast<int>(next - more - 1), static_cast<int>(next - 1)});
    }
    both.merge(set);
    if (both != among) throw std::runtime_error("negotiation: ranks of another place in the tree");
    return set;
  }

 private:
  /// @p run must not begin before any run of the set.
  void append(Run run) {
    if (!runs_.empty() && run.first <= runs_.back().last + 1)
      runs_.back().last = std::max(runs_.back().last, run.last);
    else
      runs_.push_back(run);
  }
  std::vector<Run> runs_;
};

}  // namespace hvd::negotiate
