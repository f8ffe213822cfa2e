/// @file configuration.h — the values of our variables, checked and typed.
///
/// The name of a variable is its key, and the compiler checks that the table has it with that type:
/// `configuration.flag("HVD_NCCL_WIDE")`.  An access costs an index into an array.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "options/table.h"

namespace hvd::options {

/// A snapshot of the environment.  Copyable; reading it is safe from any thread.
class Configuration {
 public:
  /// Everything at its default.
  Configuration();

  /// Reads all variables that @p reader reads; empty ones count as not set.
  /// Throws Error{usage} naming the variable that does not suit its row.
  static Configuration of_environment(Component reader);

  bool flag(FlagVariable variable) const { return values_[variable.row()].number != 0; }
  std::int64_t integer(IntegerVariable variable) const {
    return static_cast<std::int64_t>(values_[variable.row()].number);
  }
  /// In the variable's unit: HOROVOD_FUSION_THRESHOLD in bytes.
  double number(NumberVariable variable) const { return values_[variable.row()].number; }
  const std::string& text(TextVariable variable) const { return values_[variable.row()].text; }
  /// Whether it was set, be it to its default.
  bool given(AnyVariable variable) const { return values_[variable.row()].given; }

  /// As if @p text were in the environment.  Throws as of_environment().
  Configuration& set(AnyVariable variable, const std::string& text);
  Configuration& set(AnyVariable variable, double number);

 private:
  struct Value {
    double number = 0;  ///< of flags 0 or 1
    std::string text;
    bool given = false;
  };

  static Value parse(const Option& row, const std::string& text);

  std::vector<Value> values_;  ///< by row of the table
};

/// The value of one variable now, for variables that are not read at init.  Throws Error{usage} naming the variable.
bool flag_now(FlagVariable variable);
std::int64_t integer_now(IntegerVariable variable);

}  // namespace hvd::options
