/// @file log.h — the runtime's messages to the user, on stderr: "hvd: …".
///
/// HOROVOD_LOG_LEVEL says which (--log-level; hvdrun --verbose makes it info), HOROVOD_LOG_HIDE_TIME=0
/// (--log-with-timestamp) puts the date and the time of day before each.  Any thread.
#pragma once
#include <string>

namespace hvd {

/// One line, at levels info, debug and trace.
void log_info(const std::string& line);

/// One line, at all levels but error and fatal.
void log_warning(const std::string& line);

/// The same, for what the user has asked to be told.
void log_notice(const std::string& line);

}  // namespace hvd
