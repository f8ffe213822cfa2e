/// @file verdict_output.h — where verdicts go: the user's file, and Kubernetes' termination log.
#pragma once
#include <string>

#include "launcher/verdict/verdict_document.h"

namespace hvd::launcher {

/// Writes the verdict on a job that could not start to @p path (unless empty) and to the termination log.  Returns a
/// message if a file could not be written.
std::string tell_failed_start(const std::string& path, const JudgedJob& job, const Error& error);

/// Writes @p json to @p path, unless the path is empty.  Returns a message if the file could not be written.
std::string write_verdict(const std::string& path, const std::string& json);

constexpr std::size_t most_termination_bytes = 4096;  ///< Kubernetes shows no more

/// Writes @p text to HVD_TERMINATION_LOG, else to /dev/termination-log.  Replaces an earlier text of hvdrun, and keeps
/// the text of other programs before it.  If @p text is empty, only removes an earlier text.
/// The file must exist and be regular; links are not followed, and nothing is created.  Errors are ignored.
void write_termination_log(const std::string& text);

/// Like write_termination_log(), for one file.  Exposed for tests.
void write_termination_log_to(const std::string& path, const std::string& text);

}  // namespace hvd::launcher
