/// hvdrun --completion bash|zsh|fish: completion from the table of options.
#include "base/text.h"
#include "launcher/options/help.h"
#include "launcher/options/spellings.h"

namespace hvd::launcher {

namespace {

using options::ValueType;

constexpr std::string_view commands = "doctor explain kill mcp ps stacks top";
/// Shell text that lists this user's jobs: the first column of hvdrun ps.
constexpr std::string_view jobs = "hvdrun ps 2>/dev/null | sed -n 's/^\\([0-9][0-9]*\\) .*/\\1/p'";

/// All spellings of rows that are not hidden, with their --no- forms.
std::vector<std::string> spellings_of(const Option& o) {
  std::vector<std::string> out;
  if (o.hidden) return out;
  for (const std::string& s : split(o.spellings, ',')) {
    out.push_back(s);
    if (o.type == ValueType::negatable && s.starts_with("--")) out.push_back("--no-" + s.substr(2));
  }
  return out;
}

bool takes_file(const Option& o) { return o.metavar == "FILE" || o.metavar == "DIR" || o.metavar == "PATH"; }

bool takes_value(const Option& o) { return o.type != ValueType::flag && o.type != ValueType::negatable; }

std::string for_bash() {
  std::vector<std::string> all, file_taking;
  std::string choices;
  for (const Option& o : command_line_options())
    for (const std::string& s : spellings_of(o)) {
      all.push_back(s);
      if (takes_file(o)) file_taking.push_back(s);
      if (!o.choices.empty())
        choices += "    " + s + ") COMPREPLY=($(compgen -W '" + join(split(o.choices, ','), " ") +
                   "' -- \"$word\")); return ;;\n";
    }
  return "# bash completion of hvdrun: source <(hvdrun --completion bash)\n"
         "_hvdrun() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  COMPREPLY=()\n"
         "  case $before in\n    " +
         join(file_taking, "|") + ") return ;;\n" + choices +
         "    kill|stacks|top) [ \"$COMP_CWORD\" -ne 2 ] || COMPREPLY=($(compgen -W \"$(" + std::string(jobs) +
         ")\" -- \"$word\")); return ;;\n"
         "  esac\n"
         "  case $word in\n"
         "    -*) COMPREPLY=($(compgen -W '" +
         join(all, " ") +
         "' -- \"$word\")) ;;\n"
         "    *) [ \"$COMP_CWORD\" -gt 1 ] || COMPREPLY=($(compgen -W '" +
         std::string(commands) +
         "' -- \"$word\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _hvdrun hvdrun\n";
}

/// Help in single quotes, without characters that zsh and fish treat specially there.
std::string quiet(std::string_view help) {
  std::string out;
  for (const char c : help)
    if (c == '\'' || c == '[' || c == ']' || c == '\\')
      continue;
    else
      out += c == ':' ? ',' : c;
  return out;
}

std::string for_zsh() {
  std::string out =
      "#compdef hvdrun\n# zsh completion of hvdrun: hvdrun --completion zsh > ~/.zfunc/_hvdrun\n_arguments -A '-*' "
      "\\\n";
  for (const Option& o : command_line_options())
    for (const std::string& s : spellings_of(o)) {
      out += "  '" + s + "[" + quiet(o.help) + "]";
      if (takes_value(o) && o.type != ValueType::pair)
        out += ":" + quiet(o.metavar) + ":" +
               (takes_file(o)        ? "_files"
                : !o.choices.empty() ? "(" + join(split(o.choices, ','), " ") + ")"
                                     : "");
      if (o.type == ValueType::pair) out += ":least: :most:";
      out += "' \\\n";
    }
  return out + "  '1:what:_alternative \"commands:command:(" + std::string(commands) +
         ")\" \"files:file:_files\"' '*::arguments:_files'\n";
}

std::string for_fish() {
  std::string out = "# fish completion of hvdrun: hvdrun --completion fish > ~/.config/fish/completions/hvdrun.fish\n";
  out += "complete -c hvdrun -n __fish_use_subcommand -a '" + std::string(commands) + "'\n";
  out += "complete -c hvdrun -x -n '__fish_seen_subcommand_from kill stacks top' -a \"(" + std::string(jobs) + ")\"\n";
  for (const Option& o : command_line_options())
    for (const std::string& s : spellings_of(o)) {
      const bool is_long = s.starts_with("--");
      out += "complete -c hvdrun " +
             std::string(is_long         ? "-l "
                         : s.size() == 2 ? "-s "
                                         : "-o ") +
             s.substr(is_long ? 2 : 1) +
             (takes_file(o)    ? " -r -F"
              : takes_value(o) ? " -x"
                               : "") +
             (o.choices.empty() ? "" : " -a '" + join(split(o.choices, ','), " ") + "'") + " -d '" + quiet(o.help) +
             "'\n";
    }
  return out;
}

}  // namespace

std::string completion(const std::string& shell) {
  if (shell == "bash") return for_bash();
  if (shell == "zsh") return for_zsh();
  return for_fish();
}

}  // namespace hvd::launcher
