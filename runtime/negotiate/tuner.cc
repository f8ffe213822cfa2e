#include "negotiate/tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace hvd::negotiate {
namespace {

constexpr std::size_t least_pairs = 2, enough_pairs = 4, most_pairs = 8;
constexpr double hopeless = -0.05;   ///< log ratio: a candidate that is worse in all of its first pairs is refused
constexpr double same_bytes = 0.05;  ///< windows whose bytes per step differ by more have different work
constexpr std::size_t watched = 8;   ///< windows per check of the rate, times patience_
constexpr int most_patience = 64, most_restarts = 16;
/// Least deviation of log ratios, so that ratios that agree by chance do not look certain.
constexpr double least_deviation = 0.003;

/// Quantiles of Student's t, one-sided, for 2 to 8 ratios. lenient: 10 %, for a candidate. strict: 2.5 %, for the last
/// comparison with the default.
constexpr std::array<double, 7> lenient{3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.41};
constexpr std::array<double, 7> strict{12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

enum class Judgement { open, taken, refused };

/// Removes the ratio that is farthest from the median, since other load may have slowed down one window.
std::vector<double> without_farthest(std::vector<double> ratios) {
  const double middle = median(ratios);
  ratios.erase(std::max_element(ratios.begin(), ratios.end(),
                                [&](double x, double y) { return std::abs(x - middle) < std::abs(y - middle); }));
  return ratios;
}

/// @p ratios: log(B / A) of each pair.  @p final: the strict test, against the default.
Judgement judge(std::vector<double> ratios, double margin, bool final) {
  const std::size_t pairs = ratios.size();
  if (pairs < least_pairs) return Judgement::open;
  if (!final && *std::max_element(ratios.begin(), ratios.end()) < hopeless) return Judgement::refused;
  if (pairs < enough_pairs) return Judgement::open;
  ratios = without_farthest(std::move(ratios));
  const std::size_t n = ratios.size();
  double mean = 0, squares = 0;
  for (const double r : ratios) mean += r / static_cast<double>(n);
  for (const double r : ratios) squares += (r - mean) * (r - mean);
  const double deviation = std::max(std::sqrt(squares / static_cast<double>(n - 1)), least_deviation);
  const double error = deviation / std::sqrt(static_cast<double>(n));
  const double t = (final ? strict : lenient)[n - least_pairs], least = std::log1p(margin);
  if (mean > least && mean > t * error) return Judgement::taken;
  if (pairs == most_pairs) return Judgement::refused;
  return !final && mean + t * error < least ? Judgement::refused : Judgement::open;
}

}  // namespace

Tuner::Tuner(std::vector<int> levels, Point fallback, Point start, TunerOptions options)
    : levels_(std::move(levels)),
      fallback_(std::move(fallback)),
      options_(options),
      best_(std::move(start)),
      warmup_(options.warmup_windows) {
  if (warmup_ == 0) begin();
}

/// Begins a search with the default as the best point.  If an earlier search found another best point, that point is
/// the first candidate.  So the default wins ties.
void Tuner::begin() {
  Point start = std::exchange(best_, fallback_);
  search_ = {};
  tried_ = {best_};
  candidates_ = 0;
  gain_ = 0;
  if (start != best_) return compare(std::move(start), State::comparing);
  Point candidate;
  propose(candidate) ? compare(std::move(candidate), State::comparing) : finish();
}

void Tuner::compare(Point candidate, State state) {
  state_ = state;
  candidate_ = std::move(candidate);
  tried_.insert(candidate_);
  windows_.clear(), ratios_.clear(), rates_.clear();
  on_candidate_ = false;
  restarts_ = 0;
}

bool Tuner::add(const TunerWindow& window) {
  if (!(window.seconds > 0) || !(window.bytes > 0)) return false;
  switch (state_) {
    case State::warmup:
      if (--warmup_ <= 0) begin();
      return false;
    case State::watching:
      return watch(window);
    default:
      return pair_ended(window);
  }
}

bool Tuner::pair_ended(const TunerWindow& window) {
  windows_.push_back(window);
  // The order is A B B A: in every second pair B comes first.
  const std::size_t next = windows_.size() % 4;
  on_candidate_ = next == 1 || next == 2;
  if (windows_.size() % 2 != 0) return false;
  const bool odd = windows_.size() % 4 == 0;
  const TunerWindow &first = windows_[windows_.size() - 2], &second = windows_.back();
  const TunerWindow &a = odd ? second : first, &b = odd ? first : second;
  const double work_a = a.bytes / a.steps, work_b = b.bytes / b.steps;
  if (std::abs(work_a - work_b) > same_bytes * std::max(work_a, work_b)) {
    // The steps' work has changed: the comparison starts again.
    if (++restarts_ < most_restarts) {
      windows_.clear(), ratios_.clear(), rates_.clear();
      on_candidate_ = false;
      return false;
    }
    settle(false);
    return true;
  }
  ratios_.push_back(std::log(b.rate() / a.rate()));
  rates_.push_back(b.rate());
  const bool final = state_ == State::final;
  const Judgement verdict = judge(ratios_, final ? options_.margin / 2 : options_.margin, final);
  if (verdict == Judgement::open) return false;
  settle(verdict == Judgement::taken);
  return true;
}

void Tuner::settle(bool taken) {
  const double gain = ratios_.empty() ? 0 : std::expm1(median(ratios_));
  last_ = {candidate_, rates_.empty() ? 0 : median(rates_), gain, taken};
  if (state_ == State::final) {  // A is the default, B the best point of the search
    gain_ = taken ? gain : 0;
    if (taken) best_ = candidate_;
    return rest();
  }
  ++candidates_;
  if (taken) best_ = candidate_;
  search_.moved |= taken;
  search_.improved |= taken;
  Point candidate;
  if (candidates_ < options_.most_candidates && propose(candidate))
    compare(std::move(candidate), State::comparing);
  else
    finish();
}

/// Sets @p candidate to the next point that was not tried yet.  Returns false if there is none.
bool Tuner::propose(Point& candidate) {
  do {
    const auto d = static_cast<std::size_t>(search_.dimension);
    if (d < levels_.size() && search_.stride > 0 && search_.direction != 0) {
      candidate = best_;
      candidate[d] = std::clamp(candidate[d] + search_.direction * search_.stride, 0, levels_[d] - 1);
      if (!tried_.contains(candidate)) return true;
    }
  } while (advance());
  return false;
}

/// Moves the search on; returns false at its end.  In a direction that was better, the search continues.  Otherwise the
/// search tries the other direction, then half the stride, then the next dimension.  Later passes try neighbours only,
/// while they find a better point.
bool Tuner::advance() {
  Search& s = search_;
  const auto dimensions = static_cast<int>(levels_.size());
  if (s.dimension < dimensions && s.stride > 0) {
    if (std::exchange(s.moved, false)) {
      const auto d = static_cast<std::size_t>(s.dimension);
      const int to = best_[d] + s.direction * s.stride;
      if (to >= 0 && to < levels_[d]) return true;
      s.direction = 0;
    } else {
      s.direction = s.direction == 1 ? -1 : 0;
    }
    if (s.direction != 0) return true;
    s.direction = 1;
    s.stride /= 2;
    if (s.stride > 0) return true;
    ++s.dimension;
  }
  if (s.dimension == dimensions) {
    if (s.fine && !s.improved) return false;
    s.fine = true;
    s.improved = false;
    s.dimension = 0;
  }
  s.direction = 1;
  s.moved = false;
  const int levels = levels_[static_cast<std::size_t>(s.dimension)];
  if (levels < 2) {
    ++s.dimension;
    s.stride = 0;
    return s.dimension < dimensions || !s.fine || s.improved;
  }
  s.stride = 1;
  while (!s.fine && s.stride * 2 < levels) s.stride *= 2;
  return true;
}

void Tuner::finish() {
  if (best_ == fallback_) {
    gain_ = 0;
    return rest();
  }
  Point found = std::exchange(best_, fallback_);  // the default is A, so it wins ties
  compare(std::move(found), State::final);
}

/// Uses the best point, and watches its rate.
void Tuner::rest() {
  state_ = State::watching;
  on_candidate_ = false;
  baseline_ = 0;
  recent_.clear();
}

bool Tuner::watch(const TunerWindow& window) {
  recent_.push_back(window.rate());
  if (recent_.size() < watched * static_cast<std::size_t>(patience_)) return false;
  const double rate = median({recent_.begin(), recent_.end()});
  recent_.clear();
  if (baseline_ == 0) {
    baseline_ = rate;
    return false;
  }
  if (std::abs(rate / baseline_ - 1) <= options_.drift) return false;
  patience_ = std::min(2 * patience_, most_patience);
  begin();
  return false;
}

}  // namespace hvd::negotiate
