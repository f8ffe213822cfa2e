/// @file value.h — checks one value against its row.
#pragma once
#include <string>

#include "options/option.h"

namespace hvd::options {

/// The unit in which a value is written.  In a row with a Conversion, option and variable have different units.
enum class ValueUnit { option, variable };

/// @p value in the option's unit and in one spelling: booleans as "1" or "0", a choice as the table writes it.
/// @param where  for messages: "--grace", "HVD_GRACE", "job.yaml:3:5"
/// Throws Error{usage, where} when the value does not suit the row.
std::string checked(const Option& row, std::string value, const std::string& where, ValueUnit unit);

/// A checked value of an option as the text of its variable.
std::string variable_text(const Option& row, const std::string& checked_value);

}  // namespace hvd::options
