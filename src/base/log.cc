#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hvd {

void log_info(const std::string& line) {
  const char* const level = std::getenv("HOROVOD_LOG_LEVEL");
  for (const char* talkative : {"trace", "debug", "info", "TRACE", "DEBUG", "INFO"})
    if (level && std::strcmp(level, talkative) == 0) std::fprintf(stderr, "hvd: %s\n", line.c_str());
}

void log_warning(const std::string& line) { std::fprintf(stderr, "hvd: %s\n", line.c_str()); }

}  // namespace hvd
