/// @file table.h — every option of hvdrun, once.
///
/// The table feeds the command line, the environment, --config-file, --help, the manual (--dump-options) and, through
/// that, Python's run().  To add an option: one row in table.cc; read it where it is used by its id.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hvd::launcher {

/// What a value may be.
enum class Kind {
  flag,       ///< present or not
  negatable,  ///< --x and --no-x; a boolean in the environment and in the config file
  integer,
  number,
  text,
  pair,  ///< two integers after the flag
};

/// Section of --help; those after `life` are listed by --help-all only.
enum class Group {
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
  other
};

/// How a value becomes the value of its variable.
enum class Convert { same, megabytes, inverted };

enum class Support {
  yes,
  note,   ///< accepted; `remark` is printed once
  later,  ///< an error that says `remark`
};

struct Option {
  std::string_view id;         ///< canonical long name, without dashes
  std::string_view spellings;  ///< as typed, comma-separated; negatable ones get --no- by themselves
  Kind kind = Kind::flag;
  Group group = Group::other;
  std::string_view metavar = {};   ///< shown in help
  std::string_view variable = {};  ///< read below the flag; with `for_ranks` also set for the ranks
  bool for_ranks = false;
  Convert convert = Convert::same;
  std::string_view fallback = {};  ///< default; empty: none, or said in `help`
  std::string_view yaml = {};      ///< key in --config-file, dotted
  std::string_view help = {};      ///< one line, no full stop
  Support support = Support::yes;
  std::string_view remark = {};
  std::optional<double> least = std::nullopt;  ///< numbers: smallest value that makes sense
  std::optional<double> most = std::nullopt;   ///< and largest
  std::string_view opposites = {};  ///< negatable: other spellings of --no-…, comma-separated, and of their own
  std::string_view choices = {};    ///< words that a text may be, comma-separated; case does not matter
  bool hidden = false;
};

std::span<const Option> option_table();

/// Row with this id.  Asking for an id that is not there is our bug: Error{internal}.
const Option& option(std::string_view id);

/// Row that has @p spelling ("--hosts", "-H", "--no-autotune", "-np"); null when none has.
/// @param negated  set to whether it is the --no- form
const Option* find_spelling(std::string_view spelling, bool* negated = nullptr);

/// What to write instead of an option that is none of ours: the nearest spelling, or what a neighbour's option
/// (torchrun's, mpirun's) is called here; empty when none is near.
std::string advice_on(std::string_view typed);
/// The key of the configuration file nearest to a mistyped one; empty when none is near.
std::string nearest_key(std::string_view typed);

std::string_view group_title(Group group);

/// @param columns  width of the terminal; help texts are broken at blanks to fit
std::string help_text(bool all, std::size_t columns);
/// Completion for bash, zsh or fish: a choice of the table.
std::string completion(const std::string& shell);
/// The table as JSON, for the manual's generator and Python's run().
std::string dump_options();

}  // namespace hvd::launcher
