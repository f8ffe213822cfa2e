/// @file tuned_file.h — HVD_AUTOTUNE_FROM: what tuning has found, a line for each form of job.
///
///   hosts=2 ranks=2 transport=auto fusion_bytes=8388608 hold_ns=1000000 slice_bytes=2097152 latency_ns=200000
///   gain=0.23
///
/// Lines that begin with # are comments.  The first three words are the form; a line counts for jobs of its form alone.
#pragma once
#include <optional>
#include <string>

#include "common/tuned_settings.h"
#include "common/world.h"
#include "core/settings/config.h"

namespace hvd::core {

/// "hosts=2 ranks=2 transport=auto"
std::string form_of_job(const World& world, const Config& config);

/// Of the last line with that form; what it leaves out is as in @p fallback.  Nothing where there is no such line.
/// Throws Error{usage} naming the line that is none.
std::optional<TunedSettings> settings_in(const std::string& text, const std::string& path, const std::string& form,
                                         const TunedSettings& fallback);

/// @p text with one line for the form: this one.
std::string with_settings(const std::string& text, const std::string& form, const TunedSettings& settings, double gain);

/// The whole file; empty where there is none yet.  Throws Error{usage} when it cannot be read, or another user could
/// have chosen it.
std::string read_tuned_file(const std::string& path);

}  // namespace hvd::core
