/// @file exception_barrier.h — the border between C++ exceptions and C status codes.
#pragma once
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace hvd {

/// Text of the last failure on this thread, for hvd_last_error().
inline std::string& last_error() {
  thread_local std::string s;
  return s;
}

/// Sets last_error() to one line.  Control characters become blanks: a tensor's name may contain some.
inline void fail_with(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  last_error() = std::move(text);
}

/// Throws Error{usage} for a NULL argument.
inline void need(const void* argument, const char* name) {
  if (!argument) throw Error(Code::usage, name, "is NULL");
}

/// Runs @p body.  Returns 0, or the Code of the exception that @p body threw.  Never throws.
template <class F>
int exception_barrier(F&& body) noexcept {
  try {
    body();
    return static_cast<int>(Code::ok);
  } catch (const Error& e) {
    fail_with(e.hint.empty() ? e.what() : std::string(e.what()) + " (" + e.hint + ")");
    return static_cast<int>(e.code);
  } catch (const std::system_error& e) {
    const bool no_thread = e.code() == std::errc::resource_unavailable_try_again;  // std::thread's only such error
    fail_with(no_thread ? "no thread can be started (too many processes? see ulimit -u, and pids.max of a container)"
                        : e.what());
    return static_cast<int>(no_thread ? Code::unavailable : Code::internal);
  } catch (const std::exception& e) {
    fail_with(e.what());
    return static_cast<int>(Code::internal);
  } catch (...) {
    fail_with("an exception of an unknown kind");
    return static_cast<int>(Code::internal);
  }
}

}  // namespace hvd
