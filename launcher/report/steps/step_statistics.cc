#include "launcher/report/steps/step_statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace hvd::launcher {

namespace {

double seconds_of(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

/// Returns the median; of an even number of values, the lower middle one.  Reorders @p values.
double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A joined step's data under way.
class DataUnderWay {
 public:
  explicit DataUnderWay(const JoinedStep& step) {
    for (const JoinedStep::Part& p : step.parts) delay_ = std::max(delay_, p.record.operation_delay_ns);
    for (const JoinedStep::Part& p : step.parts) {
      const std::int64_t wait = p.record.waited_ns + p.record.moved_ns - others_delay(p.record);
      least_ = &p == &step.parts.front() ? wait : std::min(least_, wait);
    }
    if (step.parts.size() < 2) least_ = 0;
  }
  /// The time for which the rank waited for data under way.
  std::int64_t of(const wire::StepRecord& r) const { return std::max({r.moved_ns - others_delay(r), least_, {}}); }

 private:
  /// While a rank has no core within an operation, the others wait for that rank, though all have submitted it.
  std::int64_t others_delay(const wire::StepRecord& r) const { return delay_ - r.operation_delay_ns; }

  std::int64_t delay_ = 0;  ///< the longest of any rank
  /// The least time that any rank spent in waiting for ranks and for data.  `least_` is the time of messages and data
  /// in transit.  On one rank of a slow link, the transit counts as waiting for the other rank.
  std::int64_t least_ = 0;
};

/// A rank's own time: the step's time minus waiting and moving data.
std::int64_t own_ns(const wire::StepRecord& r) { return r.step_ns - r.waited_ns - r.moved_ns; }
double own_seconds(const wire::StepRecord& r) { return seconds_of(own_ns(r)); }

/// The parts of a rank's own time.
DelaySeconds parts_of(const wire::StepRecord& r) {
  DelaySeconds parts{};
  const auto set = [&](Delay delay, std::int64_t ns) { parts[static_cast<std::size_t>(delay)] = seconds_of(ns); };
  set(Delay::input, r.input_ns);
  set(Delay::saving, r.save_ns);
  set(Delay::collecting, r.collect_ns);
  set(Delay::compiling, r.compile_ns);
  std::int64_t left = std::max<std::int64_t>(own_ns(r) - r.input_ns - r.save_ns - r.collect_ns - r.compile_ns, 0);
  const std::int64_t no_core = std::min(r.run_delay_ns, left);
  set(Delay::no_core, no_core);
  left -= no_core;
  // Threads that spin while they wait use the processor too, so the rank has slept for this time or longer.
  const std::int64_t asleep = std::clamp<std::int64_t>(left - r.cpu_ns, 0, left);
  set(Delay::asleep, asleep);
  set(Delay::computing, left - asleep);
  return parts;
}

/// The number of steps, of @p steps in the record @p r, that share the delay @p late.  The excess of the longest step
/// over the others' mean is the delay of one.
std::int64_t late_steps(const wire::StepRecord& r, std::int64_t steps, double late) {
  if (steps == 1) return 1;
  const double longest = seconds_of(r.longest_ns);
  const double excess = longest - (seconds_of(r.step_ns) - longest) / static_cast<double>(steps - 1);
  if (excess * static_cast<double>(steps) <= late) return steps;
  return std::max<std::int64_t>(1, std::llround(late / excess));
}

}  // namespace

void MemoryCourse::add(std::int64_t step, std::int64_t bytes) {
  if (bytes <= 0 || step < next_) return;
  points_.push_back({step, bytes});
  next_ = step + stride_;
  if (points_.size() < most_points) return;
  for (std::size_t i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
  points_.resize((points_.size() + 1) / 2);
  stride_ = std::max<std::int64_t>(
      2 * stride_, (points_.back().step - points_.front().step) / static_cast<std::int64_t>(points_.size()));
  next_ = points_.back().step + stride_;
}

std::optional<MemoryCourse::Growth> MemoryCourse::growth() const {
  constexpr std::size_t enough = 12;
  if (points_.size() < enough) return {};
  const std::size_t middle = points_.size() / 2, last = points_.size() - 1, late = (middle + last) / 2;
  std::size_t rises = 0;
  for (std::size_t i = middle; i < last; ++i) rises += points_[i + 1].bytes > points_[i].bytes;
  const std::int64_t grown = points_[last].bytes - points_[middle].bytes;
  const std::int64_t lately = points_[last].bytes - points_[late].bytes;
  const std::int64_t steps = points_[last].step - points_[middle].step;
  if (grown <= 0 || 10 * rises < 7 * (last - middle) || 10 * lately < 3 * grown || steps <= 0) return {};
  return Growth{static_cast<double>(grown) / static_cast<double>(steps), grown};
}

void StopCourse::add(std::int64_t at, std::int64_t within) {
  if (count_++ == 0)
    first_ = at;
  else
    add_distance(at - last_);
  last_ = at;
  within_ = std::max(within_, within);
}

void StopCourse::add(const StopCourse& later, std::int64_t from) {
  if (later.count_ == 0) return;
  add(later.first_ + from, later.within_);
  if (later.count_ > 1) add_distance(later.least_), add_distance(later.most_);
  count_ += later.count_ - 1;
  last_ = later.last_ + from;
}

void StopCourse::add_distance(std::int64_t steps) {
  least_ = most_ == 0 ? steps : std::min(least_, steps);
  most_ = std::max(most_, steps);
}

void DelaySizes::add(double seconds, std::int64_t steps) {
  std::size_t size = 0;
  for (double longest = 2e-6; seconds > longest && size + 1 < most_sizes; longest *= 2) ++size;
  steps_[size] += static_cast<std::int32_t>(steps);
  seconds_[size] += static_cast<float>(seconds * static_cast<double>(steps));
}

DelaySizes& DelaySizes::operator+=(const DelaySizes& more) {
  for (std::size_t i = 0; i < most_sizes; ++i) steps_[i] += more.steps_[i], seconds_[i] += more.seconds_[i];
  return *this;
}

DelaySizes::CountedSteps DelaySizes::main_part() const {
  CountedSteps all, longest;
  for (std::size_t i = 0; i < most_sizes; ++i) all.steps += steps_[i], all.seconds += static_cast<double>(seconds_[i]);
  for (std::size_t i = most_sizes; i-- > 0 && longest.seconds < 0.8 * all.seconds;)
    longest.steps += steps_[i], longest.seconds += static_cast<double>(seconds_[i]);
  return 2 * longest.steps <= all.steps ? longest : all;
}

void CoreVote::add(int core, std::int64_t steps) {
  if (core < 0) return;
  if (core != core_ && lead_ < steps)
    core_ = core, lead_ = steps - lead_;
  else
    lead_ += core == core_ ? steps : -steps;
}

CoreVote& CoreVote::operator+=(const CoreVote& more) {
  add(more.core_, more.lead_);
  return *this;
}

/// Counts the GPUs' waits as the ranks'.  A GPU waits while its host waits too, or does something else, so the longer
/// of the two waits counts.  Ranks may record the wait of one batch in different steps, so means over some records are
/// compared.
JoinedStep StepStatistics::with_device_waits(JoinedStep step) {
  constexpr double records = 8;
  if (step.parts.size() < 2) return step;
  const auto steps = static_cast<double>(step.steps);
  for (auto& [rank, r] : step.parts) {
    const double here = static_cast<double>(r.device_wait_ns) / steps;
    double& mean = device_waits_.try_emplace(rank, here).first->second;
    mean += (here - mean) / records;
    const std::int64_t more = static_cast<std::int64_t>(mean * steps) - r.waited_ns - r.moved_ns;
    const std::int64_t left = own_ns(r) - r.input_ns - r.save_ns - r.collect_ns - r.compile_ns;
    r.waited_ns += std::clamp<std::int64_t>(more, 0, std::max<std::int64_t>(left, 0));
  }
  return step;
}

void StepStatistics::add(const JoinedStep& joined) {
  if (joined.parts.empty() || joined.steps <= 0) return;
  const JoinedStep step = with_device_waits(joined);
  std::vector<double> lengths;
  std::int64_t operations = 0, bytes = 0;
  const DataUnderWay data(step);
  begin_stretch();
  for (const auto& [rank, r] : step.parts) {
    RankSums& sums = ranks_[rank];
    sums.steps += step.steps;
    sums.seconds += seconds_of(r.step_ns);
    sums.waited += seconds_of(r.waited_ns + r.moved_ns - data.of(r));
    sums.moved += seconds_of(data.of(r));
    const DelaySeconds parts = parts_of(r);
    for (std::size_t i = 0; i < delay_kinds; ++i) sums.parts[i] += parts[i];
    StretchSum& stretch = stretch_of(sums);
    stretch.steps += static_cast<std::int32_t>(step.steps);
    stretch.own_seconds += static_cast<float>(own_seconds(r));
    sums.cpu += seconds_of(r.cpu_ns);
    sums.throttled += seconds_of(r.throttled_ns);
    sums.major_faults += r.major_faults;
    sums.made += seconds_of(r.made_ns);
    sums.loader = std::max(sums.loader, r.loader);
    sums.core.add(r.core, step.steps);
    if (r.link_peer >= 0)
      sums.add_link(r.link_peer,
                    {static_cast<double>(r.link_bytes), seconds_of(r.link_busy_ns), seconds_of(r.link_round_trip_ns)});
    sums.read_bytes += r.read_bytes;
    sums.written_bytes += r.written_bytes;
    memory_[rank].add(steps_, r.resident_bytes);
    lengths.push_back(seconds_of(r.step_ns));
    operations = std::max<std::int64_t>(operations, r.operations);
    bytes = std::max(bytes, r.operation_bytes);
  }
  // The mean, not the median: a record of one rank may begin a step later than that of another.
  const double length = std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  steps_ += step.steps;
  seconds_ += length;
  operations_ += operations;
  operation_bytes_ += bytes;
  find_late(step, length);
  draw(step, length);
}

/// Finds the rank that came last: the rank with the longest own time.  Waiting times tell less, because data for a rank
/// without a core waits too.  The rank's delay is its distance to the last but one.  The whole delay is charged to one
/// part of its own time.  This is the part with the largest excess over the others' median.
void StepStatistics::find_late(const JoinedStep& step, double step_seconds) {
  if (step.parts.size() < 2) return;
  const JoinedStep::Part *last = nullptr, *next = nullptr;
  for (const JoinedStep::Part& p : step.parts) {
    if (!last || own_seconds(p.record) > own_seconds(last->record))
      next = last, last = &p;
    else if (!next || own_seconds(p.record) > own_seconds(next->record))
      next = &p;
  }
  const double late = own_seconds(last->record) - own_seconds(next->record);
  if (late <= 0) return;
  std::array<std::vector<double>, delay_kinds> others;
  for (const JoinedStep::Part& p : step.parts)
    if (&p != last) {
      const DelaySeconds parts = parts_of(p.record);
      for (std::size_t i = 0; i < delay_kinds; ++i) others[i].push_back(parts[i]);
    }
  DelaySeconds excess = parts_of(last->record);
  for (std::size_t i = 0; i < delay_kinds; ++i) excess[i] -= median(others[i]);
  const auto most = std::distance(excess.begin(), std::max_element(excess.begin(), excess.end()));
  RankSums& sums = ranks_[last->rank];
  sums.late += late;
  sums.late_by[static_cast<std::size_t>(most)] += late;
  if (late > step_seconds / 20) {
    const std::int64_t steps = late_steps(last->record, step.steps, late);
    sums.late_steps += steps;
    sums.late_sizes.add(late / static_cast<double>(steps), steps);
    sums.late_steps_by[static_cast<std::size_t>(most)] += steps;
  }
  if (late > step_seconds / 2) {
    sums.stops.add(steps_, step.steps);
    StretchSum& stretch = stretch_of(sums);
    stretch.stopped_seconds += static_cast<float>(late);
  }
}

void StepStatistics::draw(const JoinedStep& step, double step_seconds) {
  constexpr std::size_t most_points = 512;
  if (course_.empty() || course_.back().steps >= steps_a_point_) {
    if (course_.size() == most_points) {
      for (std::size_t i = 0; i < most_points / 2; ++i) {
        StepPoint sum = course_[2 * i];
        const StepPoint& more = course_[2 * i + 1];
        sum.number = more.number;
        sum.steps += more.steps, sum.seconds += more.seconds;
        sum.waited += more.waited, sum.moved += more.moved, sum.input += more.input;
        sum.longest = std::max(sum.longest, more.longest);
        course_[i] = sum;
      }
      course_.resize(most_points / 2);
      steps_a_point_ *= 2;
    }
    course_.emplace_back();
  }
  StepPoint& point = course_.back();
  const auto n = static_cast<double>(step.parts.size());
  const DataUnderWay data(step);
  point.number = step.number;
  point.steps += step.steps;
  point.seconds += step_seconds;
  for (const JoinedStep::Part& p : step.parts) {
    const std::int64_t moved = data.of(p.record);
    point.waited += seconds_of(p.record.waited_ns + p.record.moved_ns - moved) / n;
    point.moved += seconds_of(moved) / n;
    point.input += seconds_of(p.record.input_ns) / n;
  }
  point.longest = std::max(point.longest, step_seconds / static_cast<double>(step.steps));
}

/// Makes room for one more joined step.
void StepStatistics::begin_stretch() {
  if (stretch_records_.empty() || stretch_records_.back() >= records_a_stretch_) {
    if (stretch_records_.size() == most_stretches) {
      halve_stretches();
      records_a_stretch_ *= 2;
    }
    stretch_records_.push_back(0);
  }
  ++stretch_records_.back();
}

/// Joins every two neighbouring stretches into one.
void StepStatistics::halve_stretches() {
  const std::size_t before = stretch_records_.size();
  for (auto& [rank, sums] : ranks_)
    for (std::size_t i = 0; i < most_stretches; ++i) {
      StretchSum sum;
      for (std::size_t from = 2 * i; from < std::min(2 * i + 2, before); ++from) {
        sum.steps += sums.stretches[from].steps;
        sum.own_seconds += sums.stretches[from].own_seconds;
        sum.stopped_seconds += sums.stretches[from].stopped_seconds;
      }
      sums.stretches[i] = sum;
    }
  for (std::size_t i = 0; 2 * i < before; ++i)
    stretch_records_[i] = stretch_records_[2 * i] + (2 * i + 1 < before ? stretch_records_[2 * i + 1] : 0);
  stretch_records_.resize((before + 1) / 2);
}

void RankSums::add_link(int peer, const LinkSum& link) {
  constexpr std::size_t most_links = 16;
  if (links.size() == most_links && !links.contains(peer)) return;
  LinkSum& sum = links[peer];
  sum.bytes += link.bytes, sum.busy += link.busy;
  sum.round_trip = std::max(sum.round_trip, link.round_trip);
}

RankSums& RankSums::operator+=(const RankSums& more) {
  steps += more.steps, seconds += more.seconds;
  waited += more.waited, moved += more.moved, cpu += more.cpu, throttled += more.throttled;
  read_bytes += more.read_bytes, written_bytes += more.written_bytes, major_faults += more.major_faults;
  late_steps += more.late_steps, late += more.late, made += more.made;
  loader = std::max(loader, more.loader);
  core += more.core;
  late_sizes += more.late_sizes;
  for (const auto& [peer, link] : more.links) add_link(peer, link);
  for (std::size_t i = 0; i < delay_kinds; ++i) {
    parts[i] += more.parts[i], late_by[i] += more.late_by[i];
    late_steps_by[i] += more.late_steps_by[i];
  }
  return *this;
}

StepStatistics& StepStatistics::operator+=(const StepStatistics& other) {
  StepStatistics more = other;
  while (stretch_records_.size() + more.stretch_records_.size() > most_stretches) {
    halve_stretches();
    more.halve_stretches();
  }
  const std::size_t at = stretch_records_.size();
  const std::int64_t from = steps_;
  steps_ += more.steps_, seconds_ += more.seconds_;
  operations_ += more.operations_, operation_bytes_ += more.operation_bytes_;
  for (const auto& [rank, sums] : more.ranks_) {
    RankSums& mine = ranks_[rank] += sums;
    mine.stops.add(sums.stops, from);
    for (std::size_t i = 0; i < more.stretch_records_.size(); ++i) mine.stretches[at + i] = sums.stretches[i];
  }
  stretch_records_.insert(stretch_records_.end(), more.stretch_records_.begin(), more.stretch_records_.end());
  records_a_stretch_ = std::max(records_a_stretch_, more.records_a_stretch_);
  return *this;
}

std::vector<JoinedStep> WarmUp::pass(JoinedStep step) {
  if (over_) {
    std::vector<JoinedStep> one;
    one.push_back(std::move(step));
    return one;
  }
  held_.push_back(std::move(step));
  return held_.size() < looked_at ? std::vector<JoinedStep>() : rest();
}

std::vector<JoinedStep> WarmUp::rest() {
  over_ = true;
  std::vector<double> lengths;
  const auto length = [](const JoinedStep& s) {
    return s.parts.empty() ? 0 : seconds_of(s.parts.front().record.step_ns) / static_cast<double>(s.steps);
  };
  for (std::size_t i = held_.size() / 2; i < held_.size(); ++i) lengths.push_back(length(held_[i]));
  const double usual = median(lengths);
  std::size_t skip = held_.size() > 1 ? 1 : 0;
  while (skip < std::min(held_.size(), most_left_out) && length(held_[skip]) > 2 * usual) ++skip;
  for (std::size_t i = 0; i < skip; ++i) left_out_ += held_[i].steps;
  std::vector<JoinedStep> counted(std::make_move_iterator(held_.begin() + static_cast<std::ptrdiff_t>(skip)),
                                  std::make_move_iterator(held_.end()));
  held_.clear();
  return counted;
}

}  // namespace hvd::launcher
