/// @file value.h — checks one value against its row of the table.
#pragma once
#include <string>

#include "options/option.h"

namespace hvd::options {

/// The unit in which a value is written.  A row with a Conversion has one unit for the option, and another for the
/// variable.
enum class ValueUnit { option, variable };

/// Converts @p value to the option's unit and a uniform spelling.  A boolean becomes "1" or "0"; a choice is spelled as
/// in the table.
/// @param where  place of the value, for messages: "--grace", "HVD_GRACE", "job.yaml:3:5"
/// @param unit   the unit of @p value
/// Throws Error{usage, where} if the value does not suit the row.
std::string checked(const Option& row, std::string value, const std::string& where, ValueUnit unit);

/// Converts the result of checked() to the text of the row's variable.
std::string variable_text(const Option& row, const std::string& checked_value);

}  // namespace hvd::options
