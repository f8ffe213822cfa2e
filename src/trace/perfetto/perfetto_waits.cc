#include "trace/perfetto/perfetto_waits.h"

#include <algorithm>
#include <utility>

namespace hvd::trace {

namespace {

constexpr std::size_t most_arrivals = 4096, kept_arrivals = 256;  ///< of a row
constexpr std::size_t most_waits = 1u << 16;
constexpr std::int64_t skew_period_ns = 1'000'000;

}  // namespace

PerfettoWaits::Arrivals* PerfettoWaits::arrivals_of(std::uint64_t key, std::uint64_t index) {
  RowArrivals& of = rows_[key];
  if (index < of.first || index - of.first >= 2 * most_arrivals) return nullptr;
  while (of.all.size() <= index - of.first) of.all.emplace_back();
  // Keeps a few complete entries for ranks whose records arrive late.
  const auto too_many = [&] {
    return of.all.size() > most_arrivals || (of.all.size() > kept_arrivals && of.all.front().ranks >= names_.size());
  };
  while (index > of.first && too_many()) of.all.pop_front(), ++of.first;
  return &of.all[index - of.first];
}

void PerfettoWaits::arrived(int rank, std::uint64_t key, std::uint64_t index, std::int64_t ns) {
  Arrivals* of = forgotten_ ? nullptr : arrivals_of(key, index);
  if (of == nullptr) return;
  ++of->ranks;
  of->first_ns = std::min(of->first_ns, ns);
  if (ns > of->last_ns) of->last_ns = ns, of->last_rank = rank;
  if (of->ranks != names_.size() || of->ranks < 2) return;
  const std::int64_t skew = of->last_ns - of->first_ns;
  if (of->last_ns - skew_at_ns_ < skew_period_ns && skew <= skew_ns_) return;
  if (skew_track_ == 0)
    // Perfetto's page shows a top track only if there are tracks below it.
    skew_track_ = packets.add_counter(packets.add_track(0, "all ranks", INT32_MAX), "skew of arrival",
                                      PerfettoPackets::Unit::nanoseconds, INT32_MAX);
  skew_at_ns_ = of->last_ns;
  skew_ns_ = skew;
  packets.counter(skew_track_, skew, time(of->last_ns));
}

PerfettoWaits::Last PerfettoWaits::last_of(const BatchWait& wait) {
  Last last{.final = !forgotten_};
  std::int64_t last_ns = INT64_MIN;
  for (const auto& [key, index] : wait.tensors) {
    const Arrivals* of = forgotten_ ? nullptr : arrivals_of(key, index);
    if (of == nullptr) return {.rank = -1, .final = true};
    last.final = last.final && of->ranks >= names_.size();
    if (of->last_ns > last_ns) last_ns = of->last_ns, last.rank = of->last_rank;
  }
  return last;
}

void PerfettoWaits::write(const BatchWait& wait, int last_rank) {
  if (names_.size() > 1 && last_rank == wait.rank) return;
  const bool told = names_.size() > 1 && last_rank >= 0;
  packets.begin(wait.track, told ? "waited for " + names_[last_rank] : "waited", time(wait.begin_ns));
  // The file may already hold the operation that begins at end_ns.  The wait ends 1 ns before it.
  packets.end(wait.track, time(wait.end_ns) - 1);
}

void PerfettoWaits::wait(BatchWait wait) {
  waits_.push_back(std::move(wait));
  if (waits_.size() > most_waits) write_known(waits_.front().end_ns);
}

void PerfettoWaits::write_known(std::int64_t before_ns) {
  std::erase_if(waits_, [&](const BatchWait& wait) {
    const Last last = last_of(wait);
    const bool due = last.final || wait.end_ns <= before_ns;
    if (due) write(wait, last.rank);
    return due;
  });
}

void PerfettoWaits::forget() {
  write_known(INT64_MAX);
  rows_.clear();
  forgotten_ = true;
}

void PerfettoWaits::operation_at(std::int64_t ns) {
  if (std::exchange(begun_, true)) return;
  packets.shown_from(time(ns));
}

}  // namespace hvd::trace
