/// @file tuner.h — looks for the settings with which a job's steps are fastest, by comparing two at a time.
///
/// Pure: it says with which setting the next window is to be measured, and is told what was measured.  No thread, no
/// clock.  A setting is a point of a grid: one level in each dimension.
///
/// A candidate is compared with the best point so far in pairs of windows next to each other, in the order A B, B A,
/// A B, …: what slows the machine down for a while slows both.  It takes the best's place only when it is faster by
/// more than a margin and by more than chance explains.  Candidates come dimension by dimension, far ones first, then
/// nearer ones; then the neighbours of what was found, until none is better.  At the end the best is compared with the
/// default once more, and more strictly: the default wins ties.
///
/// Then it watches: where the rate is another one for long, it looks again.
#pragma once
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace hvd::negotiate {

/// What happened from one step's beginning to a later one's.
struct TunerWindow {
  double seconds = 0;
  double bytes = 0;
  int steps = 1;
  double rate() const { return bytes / seconds; }
};

struct TunerOptions {
  int most_candidates = 20;  ///< until the default's turn
  int warmup_windows = 3;    ///< thrown away at first
  double margin = 0.01;      ///< a candidate must be faster by this
  double drift = 0.10;       ///< the tuner starts again when the rate changes by this share
};

class Tuner {
 public:
  using Point = std::vector<int>;

  /// One comparison that has ended.
  struct Trial {
    Point point;
    double rate = 0;  ///< bytes a second, the median of its windows
    double gain = 0;  ///< over the best until then; 0.1: a tenth faster
    bool taken = false;
  };

  /// @param levels    [dimensions] how many levels each has; one: it is not tuned
  /// @param fallback  the default
  /// @param start     where an earlier run ended, or the default
  Tuner(std::vector<int> levels, Point fallback, Point start, TunerOptions options);

  /// The next window is to be measured with this.
  const Point& next() const { return on_candidate_ ? candidate_ : best_; }
  /// Measured with next(), which is another point afterwards, perhaps.  True when a comparison has ended: last().
  bool add(const TunerWindow& window);
  const Trial& last() const { return last_; }
  /// False: the best is in use, and its rate is watched.
  bool tuning() const { return state_ != State::watching; }
  const Point& best() const { return best_; }
  /// Comparisons since it last began to look.
  int candidates() const { return candidates_; }
  /// How much faster the best was than the default when they were compared last; 0 where it is the default.
  double gain() const { return gain_; }

 private:
  enum class State { warmup, comparing, final, watching };
  /// Where in the search the next candidate comes from.
  struct Search {
    int dimension = 0;
    int stride = 0;     ///< 0: the dimension has not begun
    int direction = 1;  ///< 0: both have been tried
    bool moved = false, improved = false;
    bool fine = false;  ///< a pass over neighbours alone
  };
  void begin();
  void compare(Point candidate, State state);
  bool pair_ended(const TunerWindow& window);
  void settle(bool taken);
  bool propose(Point& candidate);
  bool advance();
  void finish();
  void rest();
  bool watch(const TunerWindow& window);

  const std::vector<int> levels_;
  const Point fallback_;
  const TunerOptions options_;
  State state_ = State::warmup;
  Point best_, candidate_;
  bool on_candidate_ = false;
  int warmup_;
  int candidates_ = 0;
  double gain_ = 0;
  Search search_;
  std::set<Point> tried_;
  std::vector<TunerWindow> windows_;  ///< of the comparison: A B B A A B …
  std::vector<double> ratios_;        ///< log(B / A) of each pair
  std::vector<double> rates_;         ///< of B
  int restarts_ = 0;                  ///< of the comparison: the program did something else meanwhile
  Trial last_;
  std::deque<double> recent_;  ///< rates while it watches
  double baseline_ = 0;        ///< 0: not known yet
  int patience_ = 1;           ///< looks again the later, the more often that was in vain
};

}  // namespace hvd::negotiate
