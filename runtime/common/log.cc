#include "common/log.h"

#include <strings.h>

#include <cstdio>
#include <ctime>
#include <initializer_list>

#include "base/text.h"
#include "options/variable.h"

namespace hvd {

namespace {

/// The date, the time of day and a blank; empty unless HOROVOD_LOG_HIDE_TIME turns the time on.
std::string log_time() {
  const char* const hidden = options::value_of("HOROVOD_LOG_HIDE_TIME");
  if (!hidden || to_boolean(hidden).value_or(true)) return {};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char text[40], whole[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(whole, sizeof whole, "%s.%03ld ", text, now.tv_nsec / 1000000);
  return whole;
}

bool level_is_one_of(std::initializer_list<const char*> levels) {
  const char* const level = options::value_of("HOROVOD_LOG_LEVEL");
  for (const char* one : levels)
    if (level && strcasecmp(level, one) == 0) return true;
  return false;
}

void write_line(const std::string& line) { std::fprintf(stderr, "hvd: %s%s\n", log_time().c_str(), line.c_str()); }

}  // namespace

void log_info(const std::string& line) {
  if (level_is_one_of({"info", "debug", "trace"})) write_line(line);
}

void log_warning(const std::string& line) {
  if (!level_is_one_of({"error", "fatal"})) write_line(line);
}

void log_notice(const std::string& line) { log_warning(line); }

}  // namespace hvd
