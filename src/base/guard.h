/// @file guard.h — the border between C++ exceptions and C status codes.
#pragma once
#include <exception>
#include <string>

#include "error.h"

namespace hvd {

/// Text of the last failure on this thread, for hvd_last_error().
inline std::string& last_error() {
  thread_local std::string s;
  return s;
}

/// Runs @p body; returns 0, or the Code of what it threw.  Never throws.
template <class F>
int guard(F&& body) noexcept {
  try {
    body();
    return static_cast<int>(Code::ok);
  } catch (const Error& e) {
    last_error() = e.hint.empty() ? e.what() : std::string(e.what()) + " (" + e.hint + ")";
    return static_cast<int>(e.code);
  } catch (const std::exception& e) {
    last_error() = e.what();
    return static_cast<int>(Code::internal);
  }
}

}  // namespace hvd
