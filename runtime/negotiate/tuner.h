/// @file tuner.h — finds the settings with which a job's steps are fastest, by comparing two settings at a time.
///
/// The tuner is pure: no thread, no clock.  The tuner names the setting for the next window, and its caller reports the
/// measured window.  A setting is a point of a grid, with one level in each dimension.
///
/// The tuner compares a candidate (B) with the best point so far (A).  Windows are measured in pairs, in the order A B,
/// B A, A B, ….  So a temporary slowdown of the machine slows both.  The candidate becomes the best point if its gain
/// exceeds a margin and is statistically significant.  Candidates vary one dimension at a time, distant levels first,
/// then nearer ones.  Then come the neighbours of the best point, until no neighbour is better.  At the end the tuner
/// compares the best point with the default by a stricter test.  The default wins ties.
///
/// Then the tuner watches the rate.  If the rate changes for long, the tuner starts again.
#pragma once
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace hvd::negotiate {

/// Measurements from the beginning of one step to the beginning of a later step.
struct TunerWindow {
  double seconds = 0;
  double bytes = 0;
  int steps = 1;
  double rate() const { return bytes / seconds; }
};

struct TunerOptions {
  int most_candidates = 20;  ///< comparisons before the last one, with the default
  int warmup_windows = 3;    ///< windows at the start of the job that are ignored
  double margin = 0.01;      ///< a candidate must be faster by this share
  double drift = 0.10;       ///< the tuner starts again when the rate changes by this share
};

/// Size: one search: its candidates, the windows under way, and the rates so far.
class Tuner {
 public:
  using Point = std::vector<int>;

  /// The result of one comparison.
  struct Trial {
    Point point;
    double rate = 0;     ///< the candidate's bytes per second, median of its windows
    double gain = 0;     ///< over the best point until then; 0.1: 10 % faster
    bool taken = false;  ///< the candidate is the best point now
  };

  /// @param levels    [dimensions] number of levels of each; a dimension with one level is not tuned
  /// @param fallback  the default
  /// @param start     the best point of an earlier run, or the default
  Tuner(std::vector<int> levels, Point fallback, Point start, TunerOptions options);

  /// The setting with which the caller must measure the next window.
  const Point& next() const { return on_candidate_ ? candidate_ : best_; }
  /// Takes a window measured with next(), and may change next().  Returns true if a comparison has ended; its result is
  /// last().
  bool add(const TunerWindow& window);
  const Trial& last() const { return last_; }
  /// False: best() is in use, and the tuner watches its rate.
  bool tuning() const { return state_ != State::watching; }
  const Point& best() const { return best_; }
  /// Comparisons since the search last began, without the last one with the default.
  int candidates() const { return candidates_; }
  /// The gain of best() over the default in their last comparison, as in Trial; 0 if best() is the default.
  double gain() const { return gain_; }

 private:
  enum class State { warmup, comparing, final, watching };
  /// The position of the search in the grid.
  struct Search {
    int dimension = 0;
    int stride = 0;                        ///< distance to the best point; 0: the dimension has not begun
    int direction = 1;                     ///< 0: both have been tried
    bool moved = false, improved = false;  ///< the last candidate was taken; any of this pass was
    bool fine = false;                     ///< this pass tries only neighbours
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
  std::vector<TunerWindow> windows_;  ///< of this comparison: A B B A A B …
  std::vector<double> ratios_;        ///< log(B / A) of each pair
  std::vector<double> rates_;         ///< of each window of B
  int restarts_ = 0;                  ///< of this comparison, because the steps' work changed
  Trial last_;
  std::deque<double> recent_;  ///< rates of windows while watching
  double baseline_ = 0;        ///< the rate to compare with while watching; 0: not known yet
  int patience_ = 1;           ///< factor of the windows per check; doubles with each new search
};

}  // namespace hvd::negotiate
