/// @file table_text.h — lines of a table, formatted by printf.
#pragma once
#include <algorithm>
#include <cstdio>
#include <string>

namespace hvd::timeline {

/// Like printf(), into a string of at most 511 bytes.
template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[512];
  const int length = std::snprintf(text, sizeof text, format, values...);
  return {text, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof text - 1)};
}

}  // namespace hvd::timeline
