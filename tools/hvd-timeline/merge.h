/// @file merge.h — several ranks' files into one.
#pragma once
#include <string>
#include <vector>

namespace hvd::timeline {

/// Clocks: files of one boot of one host share CLOCK_MONOTONIC; others are aligned by their hosts' wall clocks, and the
/// file says so.  RowNumbers of one name get one number.  Returns warnings, one line each.  Throws Error{usage}.
std::vector<std::string> merge(const std::vector<std::string>& inputs, const std::string& output);

}  // namespace hvd::timeline
