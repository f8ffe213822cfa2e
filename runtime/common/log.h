/// @file log.h — the runtime's messages to the user, on stderr: "hvd: …".
///
/// HOROVOD_LOG_LEVEL (--log-level; info with hvdrun --verbose) selects the messages.  HOROVOD_LOG_HIDE_TIME=0
/// (--log-with-timestamp) adds the date and the time of day to each message.  Any thread may call these functions.
#pragma once
#include <string>

namespace hvd {

/// Writes one line, at levels info, debug and trace.
void log_info(const std::string& line);

/// Writes one line, at all levels except error and fatal.
void log_warning(const std::string& line);

/// Like log_warning(), for messages that an option of the user requests.
void log_notice(const std::string& line);

}  // namespace hvd
