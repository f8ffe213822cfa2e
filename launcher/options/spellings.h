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

/// Row with this id.  Asking for an id that is not there is our bug: Error{internal}.
const Option& option(std::string_view id);

/// Row that has @p spelling ("--hosts", "-H", "--no-autotune", "-np"); null when none has.
/// @param negated  set to whether it is the --no- form
const Option* find_spelling(std::string_view spelling, bool* negated = nullptr);

/// What to write instead of an option that is none of ours: the nearest spelling, or what another launcher's option
/// (torchrun's, mpirun's) is called here; empty when none is near.
std::string advice_on(std::string_view typed);

/// The key of the configuration file nearest to a mistyped one; empty when none is near.
std::string nearest_key(std::string_view typed);

}  // namespace hvd::launcher
