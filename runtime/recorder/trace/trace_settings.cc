/// @file trace_settings.cc — reads the settings of the timeline from the environment.
#include <string_view>

#include "options/configuration.h"
#include "options/variable.h"
#include "recorder/trace/tracer.h"

namespace hvd::trace {

TraceSettings settings_from_environment() {
  TraceSettings settings;
  const std::string_view path = options::text_of("HOROVOD_TIMELINE");
  settings.mark_cycles = options::flag_now("HOROVOD_TIMELINE_MARK_CYCLES");
  settings.steps = options::text_of("HVD_TIMELINE_STEPS");
  settings.collected = options::flag_now("HVD_TIMELINE_COLLECT") && options::value_of("HVD_LINK_FD");
  if (path == "DYNAMIC") {
    settings.start = TraceSettings::Start::later;
  } else if (!path.empty() || settings.collected) {
    settings.start = TraceSettings::Start::now;
    settings.path = path;
  }
  return settings;
}

std::string rank_path(const std::string& path, int rank, int size) {
  if (size <= 1 || rank == 0) return path;
  const std::string mark = ".rank" + std::to_string(rank);
  const std::size_t slash = path.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos || dot <= base) return path + mark;
  return path.substr(0, dot) + mark + path.substr(dot);
}

}  // namespace hvd::trace
