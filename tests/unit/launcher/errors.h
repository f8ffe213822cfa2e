/// @file errors.h — the error of an expression, as text, for comparison in tests.
#pragma once
#include <string>

#include "base/error.h"

namespace hvd {

/// "what (hint)", or "no error".
template <class F>
std::string error_of(F&& body) {
  try {
    body();
  } catch (const Error& e) { return e.hint.empty() ? e.what() : std::string(e.what()) + " (" + e.hint + ")"; }
  return "no error";
}

}  // namespace hvd
