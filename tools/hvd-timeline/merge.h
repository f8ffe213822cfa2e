/// @file merge.h — merges the timelines of several ranks into one file.
#pragma once
#include <string>
#include <vector>

namespace hvd::timeline {

/// Clocks: files of the same boot of the same host share CLOCK_MONOTONIC. Others are aligned by the wall clocks of
/// their hosts, and the merged file says so. Rows of the same name get the same number. Returns warnings, one line
/// each. Throws Error{usage}. The endings of the files' names give the formats.
std::vector<std::string> merge(const std::vector<std::string>& inputs, const std::string& output);

/// Converts one timeline to the other format. Returns warnings. Throws Error{usage}.
std::vector<std::string> convert(const std::string& input, const std::string& output);

}  // namespace hvd::timeline
