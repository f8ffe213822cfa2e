/// @file option.h — the type of a row of the table of options (table.h).
#pragma once
#include <optional>
#include <string_view>

namespace hvd::options {

/// The type of a value.
enum class ValueType {
  flag,       ///< an option without a value; as a variable a boolean
  negatable,  ///< options --x and --no-x; as a variable and in the configuration file a boolean
  integer,
  number,
  text,
  pair,  ///< an option with two integers
};

/// Section of --help and of the manual.  --help lists the sections up to `life`, and `other`.  --help-all lists all
/// sections up to `other`.  The sections after `other` contain variables without an option.
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
  files,       ///< places of programs and libraries
  testing,     ///< variables that only tests and measurements need
  job,         ///< variables that hvdrun sets for the ranks
  internal,    ///< variables between the processes of one job: no user sets them, no manual lists them
};

/// The conversion of an option's value to the value of its variable.
enum class Conversion {
  same,
  megabytes,  ///< the option is in MiB, the variable in bytes
  inverted,   ///< boolean: the variable has the opposite value
};

enum class Effect {
  full,
  none,     ///< the option is accepted without an effect, and `remark` is printed once
  refused,  ///< the option is an error with the text `remark`
};

/// The programs that read a variable, as a set: hvdrun | libhvd.
enum class Component : unsigned {
  nobody = 0,   ///< none of our programs; hvdrun sets the variable for the ranks, as Horovod does: see `effect`
  hvdrun = 1,   ///< launcher/
  guard = 2,    ///< src/rank/: hvdrank, and the programs that hvdrank starts
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
  std::string_view spellings = {};  ///< as typed, comma-separated; a negatable option also gets its --no-… spellings
  ValueType type = ValueType::flag;
  Section section = Section::other;
  std::string_view metavar = {};             ///< shown in help
  const char* variable = "";                 ///< name of the variable; the command line takes precedence over it
  Component readers = Component::hvdrun;     ///< the programs that read the variable
  bool for_ranks = false;                    ///< a value from the command line or the file is set for the ranks
  Conversion conversion = Conversion::same;  ///< from the option to the variable
  std::string_view fallback = {};            ///< default, in the option's unit; empty: none, or `help` states it
  std::string_view yaml = {};                ///< key in --config-file, dotted
  std::string_view keyword = {};             ///< keywords of hvd.run(), comma-separated; the first given one counts
  std::string_view help = {};                ///< of an option: one line, no full stop; of a variable: whole sentences
  Effect effect = Effect::full;
  std::string_view remark = {};
  std::optional<double> least = std::nullopt;  ///< smallest allowed number, in the option's unit
  std::optional<double> most = std::nullopt;   ///< largest allowed number, in the option's unit
  std::string_view opposites = {};             ///< negatable: other spellings of --no-…, comma-separated
  std::string_view choices = {};               ///< the allowed words of a text, comma-separated; case does not matter
  bool hidden = false;

  constexpr bool is_option() const { return !id.empty(); }
  constexpr bool has_variable() const { return *variable != 0; }
};

}  // namespace hvd::options
