/// @file variable.h — reads the text of one of our variables.
///
/// This header has no .cc file, so that modules without our libraries can use it.
#pragma once
#include "base/environment.h"
#include "options/table.h"

namespace hvd::options {

/// Null when the variable is not set or empty.  The result points into the environment.  The text is not checked;
/// configuration.h checks values.
inline const char* value_of(AnyVariable variable) {
  const char* const text = environment_value(variable.option().variable);
  return text && *text ? text : nullptr;
}

/// Like value_of(), but returns an empty text instead of null.
inline std::string_view text_of(AnyVariable variable) {
  const char* const text = value_of(variable);
  return text ? std::string_view(text) : std::string_view();
}

}  // namespace hvd::options
