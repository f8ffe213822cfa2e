/// @file option.h — the shape of one row of the table of options (table.h).
#pragma once
#include <optional>
#include <string_view>

namespace hvd::options {

/// The type of a value.
enum class ValueType {
  flag,       ///< on the command line present or not; a boolean as a variable
  negatable,  ///< --x and --no-x; a boolean as a variable and in the configuration file
  integer,
  number,
  text,
  pair,  ///< two integers after the flag
};

/// Section of --help and of the manual.  --help lists the sections up to `life`, and `other`.  --help-all lists all up
/// to `other`.  The sections after `other` hold variables without an option.
enum class Section {
  where,
  what,
  output,
  life,
  network,
  tuning,
  autotune,
  timeline,
  stall,
  logging,
  elastic,
  horovod,
  other,
  runtime,     ///< variables of the runtime
  gpu,         ///< variables of operations on GPUs
  frameworks,  ///< variables of the Python packages
  files,       ///< where programs and libraries are looked for
  testing,     ///< variables that only tests and measurements need
  job,         ///< variables that hvdrun sets for the ranks
  internal,    ///< between the processes of one job: no user sets them, no manual lists them
};

/// How an option's value becomes the value of its variable.
enum class Conversion {
  same,
  megabytes,  ///< the option is in MiB, the variable in bytes
  inverted,   ///< boolean: the variable says the opposite
};

enum class Effect {
  full,
  none,     ///< accepted, and changes nothing: `remark` is printed once
  refused,  ///< an error that says `remark`
};

/// The programs that read a variable, as a set: hvdrun | libhvd.
enum class Component : unsigned {
  nobody = 0,   ///< hvdrun sets the variable for the ranks as Horovod does; see `effect`
  hvdrun = 1,   ///< launcher/
  guard = 2,    ///< src/rank/: hvdrank and what it starts
  libhvd = 4,   ///< runtime/
  python = 8,   ///< src/python/, its compiled modules included
  tools = 16,   ///< tools/
  script = 32,  ///< the user's program
};

constexpr Component operator|(Component a, Component b) {
  return static_cast<Component>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

constexpr bool includes(Component set, Component one) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}

/// An option of hvdrun, an environment variable, or both.
struct Option {
  std::string_view id = {};         ///< canonical long name, without dashes; empty: a variable without an option
  std::string_view spellings = {};  ///< as typed, comma-separated; negatable ones get --no- by themselves
  ValueType type = ValueType::flag;
  Section section = Section::other;
  std::string_view metavar = {};             ///< shown in help
  const char* variable = "";                 ///< read below the flag; with `for_ranks` also set for the ranks
  Component readers = Component::hvdrun;     ///< of the variable
  bool for_ranks = false;                    ///< a value from the command line or the file is handed to the ranks
  Conversion conversion = Conversion::same;  ///< from the option to the variable
  std::string_view fallback = {};            ///< default, as the option has it; empty: none, or said in `help`
  std::string_view yaml = {};                ///< key in --config-file, dotted
  std::string_view keyword = {};             ///< of hvd.run(), comma-separated: the first one given counts
  std::string_view help = {};                ///< an option: one line, no full stop; a variable: whole sentences
  Effect effect = Effect::full;
  std::string_view remark = {};
  std::optional<double> least = std::nullopt;  ///< numbers: smallest value that makes sense, as the option has it
  std::optional<double> most = std::nullopt;   ///< and largest
  std::string_view opposites = {};             ///< negatable: other spellings of --no-…, comma-separated
  std::string_view choices = {};               ///< words that a text may be, comma-separated; case does not matter
  bool hidden = false;

  constexpr bool is_option() const { return !id.empty(); }
  constexpr bool has_variable() const { return *variable != 0; }
};

}  // namespace hvd::options
