/// @file settings.h — the user's settings: typed flag > environment > config file > default.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/spellings.h"

namespace hvd::launcher {

/// The source of a value; later sources are stronger.
enum class SettingSource { config, environment, flag };

/// One value, and its place for messages ("--np", "HOROVOD_TIMELINE", "job.yaml:3:5").
struct Setting {
  std::string value;
  SettingSource source = SettingSource::flag;
  std::string where;
};

/// Values by option id.  Each value has been checked against its row's kind.
class Settings {
 public:
  /// Keeps the value of the stronger source.  Throws Error{usage} when @p setting does not suit the row.
  void set(const Option& row, Setting setting);

  const Setting* find(std::string_view id) const;
  bool has(std::string_view id) const { return find(id) != nullptr; }
  /// The value, else the row's default, which may be empty.
  std::string text(std::string_view id) const;
  bool flag(std::string_view id) const;
  std::optional<int> integer(std::string_view id) const;
  double number(std::string_view id) const;

  /// Variables that these settings give the ranks: name → value.  Settings from the environment give none: ranks have
  /// these variables already.
  std::map<std::string, std::string> rank_variables() const;
  /// Lines to print once, for options that are accepted but have no effect.
  std::vector<std::string> remarks() const;

 private:
  std::map<std::string, Setting, std::less<>> values_;
};

/// How the payload begins on the command line.  module: -m.  dashes: --.  plain: no word.  none: no payload.
enum class PayloadPrefix { none, plain, module, dashes };

/// One program of several: "-np 6 actor.py --quick".
struct ProgramWords {
  int np = 0;
  PayloadPrefix prefix = PayloadPrefix::none;
  std::vector<std::string> payload;
};

struct CommandLine {
  Settings settings;  ///< num-proc is the sum over all programs
  PayloadPrefix prefix = PayloadPrefix::none;
  std::vector<std::string> payload;     ///< what to run, with its arguments
  int first_np = 0;                     ///< ranks of the first program, if there are further ones
  std::vector<ProgramWords> further{};  ///< the programs behind ":"
};

using Environment = std::function<const char*(const char*)>;

/// Reads argv (without the program's name), the environment and the config file.  Throws Error{usage}.
CommandLine read_command_line(const std::vector<std::string>& args, const Environment& environment);

/// Command line only.
CommandLine parse_arguments(const std::vector<std::string>& args);

/// @param text  YAML; at most 1 MiB and 8 levels
/// @param name  for messages: name:line:column
void read_config(Settings& settings, const std::string& text, const std::string& name);

/// Splits @p text into words as a POSIX shell does (quotes and backslashes, no expansion).  Throws Error{usage,
/// where}.
std::vector<std::string> shell_words(std::string_view text, const std::string& where);

}  // namespace hvd::launcher
