#include "step_record.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace hvd::wire {
namespace {

constexpr std::int64_t longest_step_ns = std::int64_t{366} * 86400 * 1'000'000'000;
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 1024;  // sums of many stay right

/// Limits @p length to @p left, the rest of the step, and subtracts it from @p left.  So the parts are never longer
/// than the step.
void cut(std::int64_t& length, std::int64_t& left) {
  length = std::clamp<std::int64_t>(length, 0, left);
  left -= length;
}

void set_right(StepRecord& s) {
  s.step_ns = std::clamp<std::int64_t>(s.step_ns, 0, longest_step_ns);
  std::int64_t left = s.step_ns;
  for (std::int64_t* part : {&s.waited_ns, &s.moved_ns, &s.input_ns, &s.save_ns, &s.collect_ns, &s.compile_ns})
    cut(*part, left);
  s.longest_ns = std::clamp<std::int64_t>(s.longest_ns, 0, s.step_ns);
  s.run_delay_ns = std::clamp<std::int64_t>(s.run_delay_ns, 0, s.step_ns);
  s.operation_delay_ns = std::clamp<std::int64_t>(s.operation_delay_ns, 0, s.run_delay_ns);
  for (std::int64_t* sum : {&s.number, &s.epoch, &s.end_ns, &s.cpu_ns, &s.read_bytes, &s.written_bytes,
                            &s.operation_bytes, &s.resident_bytes, &s.throttled_ns, &s.made_ns, &s.device_wait_ns,
                            &s.link_bytes, &s.link_busy_ns, &s.link_round_trip_ns})
    *sum = std::clamp<std::int64_t>(*sum, 0, most);
  s.operations = std::max(s.operations, 0);
  s.major_faults = std::max(s.major_faults, 0);
  s.core = std::max<std::int16_t>(s.core, -1);
  s.link_peer = std::max(s.link_peer, -1);
  if (s.loader < Loader::none || s.loader > Loader::tensorflow) s.loader = Loader::none;
}

}  // namespace

std::string encode(const std::vector<StepRecord>& steps) {
  return {reinterpret_cast<const char*>(steps.data()), steps.size() * sizeof(StepRecord)};
}

std::vector<StepRecord> decode_step_records(std::string_view bytes) {
  if (bytes.size() % sizeof(StepRecord) != 0) throw Error(Code::usage, "step records", "have a wrong length");
  std::vector<StepRecord> steps(bytes.size() / sizeof(StepRecord));
  if (!bytes.empty()) std::memcpy(steps.data(), bytes.data(), bytes.size());
  for (StepRecord& s : steps) set_right(s);
  return steps;
}

}  // namespace hvd::wire
