#include "death.h"

#include <algorithm>
#include <iterator>

#include "wire/json.h"

namespace hvd::wire {
namespace {

constexpr const char* cause_names[] = {"finished", "exited", "signalled", "oom", "stopped", "unstarted", "vanished"};

Cause cause_from(const Fields& f) {
  const std::string name = f.bytes("cause");
  for (int i = 0; i < 7; ++i)
    if (name == cause_names[i]) return static_cast<Cause>(i);
  f.bad("cause", "is unknown: " + name.substr(0, 40));
}

constexpr const char* fact_names[] = {"none",      "gpu_memory", "gpu_error",     "gpu_program",   "shared_memory_full",
                                      "disk_full", "limit",      "worker_killed", "ended_outside", "alone",
                                      "host_lost"};

DeathFact fact_from(const std::string& name) {
  const auto* found = std::find(std::begin(fact_names), std::end(fact_names), name);
  return found == std::end(fact_names) ? DeathFact::none : static_cast<DeathFact>(found - std::begin(fact_names));
}

SourceFrame frame_from(const Fields& f) {
  return {f.bytes("file"), static_cast<int>(f.integer("line", 0, INT32_MAX)), f.bytes("function")};
}

Json json_of(const SourceFrame& frame) {
  return {{"file", from_bytes(frame.file)}, {"line", frame.line}, {"function", from_bytes(frame.function)}};
}

}  // namespace

std::string to_json(const DeathRecord& r) {
  Json tail = Json::array();
  for (const std::string& line : r.tail) tail.push_back(line);
  Json ended = Json::array();
  for (const std::string& name : r.ended) ended.push_back(from_bytes(name));
  Json failure;  // null: none
  if (r.failure)
    failure = {{"code", r.failure->code}, {"peer", r.failure->peer}, {"operation", from_bytes(r.failure->operation)}};
  Json frame;
  if (r.frame) frame = json_of(*r.frame);
  Json call;
  if (r.mismatched_call)
    call = {{"error", r.mismatched_call->error},
            {"function", from_bytes(r.mismatched_call->function)},
            {"frame", json_of(r.mismatched_call->frame)}};
  return dump(Json{{"rank", r.rank},
                   {"host", from_bytes(r.host)},
                   {"pid", r.pid},
                   {"time_ns", r.time_ns},
                   {"cause", cause_names[static_cast<int>(r.cause)]},
                   {"code", r.code},
                   {"core_dumped", r.core_dumped},
                   {"text", r.text},
                   {"hint", r.hint},
                   {"phase", r.phase},
                   {"fact", fact_names[static_cast<std::size_t>(r.fact)]},
                   {"frame", frame},
                   {"failure", failure},
                   {"mismatched_call", call},
                   {"traceback", r.traceback},
                   {"traceback_shown", r.traceback_shown},
                   {"cpu_seconds", r.cpu_seconds},
                   {"peak_bytes", r.peak_bytes},
                   {"steps", r.steps},
                   {"step_seconds", r.step_seconds},
                   {"waited_seconds", r.waited_seconds},
                   {"gpu_busy_percent", r.gpu_busy_percent},
                   {"gpu_peak_bytes", r.gpu_peak_bytes},
                   {"gpu_bytes_left", r.gpu_bytes_left},
                   {"ended", ended},
                   {"tail", tail}});
}

DeathRecord death_from_json(const std::string& text) {
  const Json json = parse_object(text, "death");
  const Fields f(json, "death");
  DeathRecord r;
  r.rank = static_cast<int>(f.integer("rank", 0, INT32_MAX));
  r.host = f.bytes("host");
  r.pid = f.integer("pid", 0, INT64_MAX);
  r.time_ns = f.integer("time_ns", 0, INT64_MAX);
  r.cause = cause_from(f);
  r.code = static_cast<int>(f.integer("code", 0, 255));
  r.core_dumped = f.boolean("core_dumped");
  r.text = f.bytes("text");
  r.hint = f.bytes("hint");
  r.phase = f.bytes("phase");
  if (f.has("fact")) r.fact = fact_from(f.bytes("fact"));
  if (f.has("frame") && !f.at("frame").is_null()) r.frame = frame_from(f.object("frame"));
  if (f.has("failure") && !f.at("failure").is_null()) {
    const Fields failure = f.object("failure");
    r.failure = Failure{static_cast<std::int32_t>(failure.integer("code", 0, 255)),
                        static_cast<std::int32_t>(failure.integer("peer", -1, INT32_MAX)), failure.bytes("operation")};
  }
  if (f.has("mismatched_call") && !f.at("mismatched_call").is_null()) {
    const Fields d = f.object("mismatched_call");
    r.mismatched_call = MismatchedCall{d.bytes("error"), d.bytes("function"), frame_from(d.object("frame"))};
  }
  r.traceback = f.bytes("traceback");
  r.traceback_shown = f.boolean("traceback_shown");
  r.cpu_seconds = f.number("cpu_seconds", 0, 1e12);
  r.peak_bytes = f.integer("peak_bytes", 0, INT64_MAX);
  if (f.has("steps")) {
    r.steps = f.integer("steps", 0, INT64_MAX);
    r.step_seconds = f.number("step_seconds", 0, 1e12);
    r.waited_seconds = f.number("waited_seconds", 0, 1e12);
    r.gpu_busy_percent = f.number("gpu_busy_percent", -1, 1e6);
    r.gpu_peak_bytes = f.integer("gpu_peak_bytes", 0, INT64_MAX);
  }
  if (f.has("gpu_bytes_left")) r.gpu_bytes_left = f.integer("gpu_bytes_left", -1, INT64_MAX);
  if (f.has("ended")) r.ended = f.list("ended");
  r.tail = f.list("tail");
  return r;
}

int exit_code(const DeathRecord& r) {
  switch (r.cause) {
    case Cause::finished:
      return 0;
    case Cause::exited:
      return r.code;
    case Cause::unstarted:
      return r.code != 0 ? r.code : 4;
    case Cause::vanished:
      return r.code != 0 ? 128 + r.code : 5;
    case Cause::signalled:
    case Cause::oom:
      return 128 + r.code;
    case Cause::stopped:
      return r.code;
  }
  return 70;
}

}  // namespace hvd::wire
