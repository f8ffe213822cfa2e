/// @file log.h — lines for those who ask for more: hvdrun --verbose, HOROVOD_LOG_LEVEL.
#pragma once
#include <string>

namespace hvd {

/// The date and the time of day, and a blank, where HOROVOD_LOG_HIDE_TIME is 0 (--log-with-timestamp); else nothing.
std::string log_time();

/// One line on stderr, where HOROVOD_LOG_LEVEL is info, debug or trace.  Any thread.
void log_info(const std::string& line);

/// One line on stderr.  Any thread.
void log_warning(const std::string& line);

}  // namespace hvd
