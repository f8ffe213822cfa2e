#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/text.h"

namespace hvd {

std::string log_time() {
  const char* const hidden = std::getenv("HOROVOD_LOG_HIDE_TIME");
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

void log_info(const std::string& line) {
  const char* const level = std::getenv("HOROVOD_LOG_LEVEL");
  for (const char* talkative : {"trace", "debug", "info", "TRACE", "DEBUG", "INFO"})
    if (level && std::strcmp(level, talkative) == 0)
      std::fprintf(stderr, "hvd: %s%s\n", log_time().c_str(), line.c_str());
}

void log_warning(const std::string& line) { std::fprintf(stderr, "hvd: %s\n", line.c_str()); }

}  // namespace hvd
