/// @file tuned_file.h — the file of HVD_AUTOTUNE_FROM: tuned settings, a line for each form of job.
///
///   hosts=2 ranks=2 transport=auto fusion_bytes=8388608 hold_ns=1000000 slice_bytes=2097152 latency_ns=200000
///   gain=0.23
///
/// Lines that begin with # are comments.  The first three words are the form.  A line applies only to jobs of its form.
#pragma once
#include <optional>
#include <string>

#include "common/tuned_settings.h"
#include "common/world.h"
#include "core/settings/config.h"

namespace hvd::core {

/// "hosts=2 ranks=2 transport=auto"
std::string form_of_job(const World& world, const Config& config);

/// The settings of the last line with that form; @p fallback has settings that the line leaves out.  Empty: no line has
/// the form.  Throws Error{usage} that names an invalid line.
std::optional<TunedSettings> settings_in(const std::string& text, const std::string& path, const std::string& form,
                                         const TunedSettings& fallback);

/// Returns @p text with this line in place of all lines of its form.
std::string with_settings(const std::string& text, const std::string& form, const TunedSettings& settings, double gain);

/// The content of the file; empty: the file does not exist.  Throws Error{usage} if the file cannot be read, or another
/// user could have written it.
std::string read_tuned_file(const std::string& path);

}  // namespace hvd::core
