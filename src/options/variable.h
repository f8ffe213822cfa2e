/// @file variable.h — the text of a variable of ours, now.  Header only, for modules that link nothing of ours.
#pragma once
#include "base/environment.h"
#include "options/table.h"

namespace hvd::options {

/// Null when the variable is not set, or is empty.  Points into the environment.  Unchecked: configuration.h checks.
inline const char* value_of(AnyVariable variable) {
  const char* const text = environment_value(variable.option().variable);
  return text && *text ? text : nullptr;
}

/// Like value_of(), but empty when the variable is not set.
inline std::string_view text_of(AnyVariable variable) {
  const char* const text = value_of(variable);
  return text ? std::string_view(text) : std::string_view();
}

}  // namespace hvd::options
