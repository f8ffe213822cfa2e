/// @file spellings.h — the command line's half of the table of options (options/table.h).
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "options/option.h"

namespace hvd::launcher {

using options::Option;

/// Every option of hvdrun.
std::span<const Option> command_line_options();

/// Row with this id.  Throws Error{internal} when there is none, which is a bug of hvdrun.
const Option& option(std::string_view id);

/// Row with @p spelling ("--hosts", "-H", "--no-autotune", "-np"); null: there is none.
/// @param negated  becomes true for a --no- form
const Option* find_spelling(std::string_view spelling, bool* negated = nullptr);

/// Advice for an unknown option: the nearest spelling, or hvdrun's option for another launcher's (torchrun, mpirun).
/// Empty: no spelling is near.
std::string advice_on(std::string_view typed);

/// The configuration file's key that is nearest to a mistyped one; empty: no key is near.
std::string nearest_key(std::string_view typed);

}  // namespace hvd::launcher
