/// @file configuration.h — the values of our variables, checked and typed.
///
/// A variable's name is its key: `configuration.flag("HVD_NCCL_WIDE")`.  The compiler checks that the table has the
/// variable with this type.  At run time an access is an index into an array.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "options/table.h"

namespace hvd::options {

/// A snapshot of the environment.  Copyable.  Several threads may read one object.
class Configuration {
 public:
  /// All variables at their defaults.
  Configuration();

  /// Reads the variables of @p reader from the environment.  An empty variable counts as not set.
  /// Throws Error{usage} with where = the variable, if a value does not suit its row.
  static Configuration of_environment(Component reader);

  bool flag(FlagVariable variable) const { return values_[variable.row()].number != 0; }
  std::int64_t integer(IntegerVariable variable) const {
    return static_cast<std::int64_t>(values_[variable.row()].number);
  }
  /// In the variable's unit: HOROVOD_FUSION_THRESHOLD in bytes.
  double number(NumberVariable variable) const { return values_[variable.row()].number; }
  const std::string& text(TextVariable variable) const { return values_[variable.row()].text; }
  /// True if the variable was set, also if to its default.
  bool given(AnyVariable variable) const { return values_[variable.row()].given; }

  /// Sets the variable as if @p text were in the environment.  Throws as of_environment().
  Configuration& set(AnyVariable variable, const std::string& text);
  Configuration& set(AnyVariable variable, double number);

 private:
  struct Value {
    double number = 0;  ///< of a flag: 0 or 1
    std::string text;
    bool given = false;
  };

  static Value parse(const Option& row, const std::string& text);

  std::vector<Value> values_;  ///< by the table's row
};

/// Reads one variable from the environment now, for variables that may change after init.
/// Throws as Configuration::of_environment().
bool flag_now(FlagVariable variable);
std::int64_t integer_now(IntegerVariable variable);

}  // namespace hvd::options
