/// @file settings.cc — what the environment says about the timeline.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "recorder/tracer.h"

namespace hvd::trace {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

bool boolean(const char* name) {
  std::string value(variable(name));
  for (char& c : value) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const char* yes : {"1", "true", "yes", "on"})
    if (value == yes) return true;
  for (const char* no : {"", "0", "false", "no", "off"})
    if (value == no) return false;
  throw Error(Code::usage, name, "not a boolean: '" + value + "'", "write 1 or 0");
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  const std::string_view path = variable("HOROVOD_TIMELINE");
  settings.mark_cycles = boolean("HOROVOD_TIMELINE_MARK_CYCLES");
  settings.collected = boolean("HVD_TIMELINE_COLLECT") && !variable("HVD_LINK_FD").empty();
  if (path == "DYNAMIC") {
    settings.start = Settings::Start::later;
  } else if (!path.empty() || settings.collected) {
    settings.start = Settings::Start::now;
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
