/// @file tool_arguments.cc — getopt_long() with one table of commands.
#include "tool_arguments.h"

#include <getopt.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace hvd::timeline {
namespace {

struct ToolCommand {
  const char* name;
  const char* files;  ///< their names in the help
  std::size_t least;  ///< the fewest files
  std::size_t most;
  bool output;  ///< needs --output
  bool json;    ///< takes --json
  const char* about;
};

constexpr std::array commands{
    ToolCommand{"merge", "FILE...", 1, 1 << 20, true, false, "join the files that ranks wrote without hvdrun into one"},
    ToolCommand{"convert", "FILE", 1, 1, true, false, "write a timeline in the other format, .json or .pftrace"},
    ToolCommand{"report", "FILE", 1, 1, false, true,
                "count and time operations, negotiations and phases; name the ranks that come late"},
    ToolCommand{"diff", "FIRST SECOND", 2, 2, false, true,
                "compare two timelines: what takes longer, and which ranks come later"},
    ToolCommand{"desync", "FILE", 1, 1, false, false,
                "name the first operation in which the ranks of a job differ; FILE is the JOB.ops that hvdrun kept"},
};

std::string usage_of(const ToolCommand& command) {
  return std::string("hvd-timeline ") + command.name + (command.output ? " -o OUTPUT" : "") +
         (command.json ? " [--json]" : "") + " " + command.files;
}

[[noreturn]] void refuse(const std::string& what, const std::string& usage) {
  throw Error(Code::usage, "", what, "usage: " + usage);
}

const ToolCommand& command_named(std::string_view name) {
  for (const ToolCommand& command : commands)
    if (name == command.name) return command;
  refuse(name.empty() ? "a command is missing" : "there is no command \"" + std::string(name) + "\"",
         "hvd-timeline merge|convert|report|diff|desync ...; hvd-timeline --help explains them");
}

void print_help() {
  std::puts(
      "Works on the timelines of hvdrun and of Horovod-style programs: Chrome trace JSON, or Perfetto's .pftrace.\n"
      "Open them in https://ui.perfetto.dev or chrome://tracing.\n");
  for (const ToolCommand& command : commands) std::printf("  %s\n      %s\n", usage_of(command).c_str(), command.about);
  std::puts(
      "\n  -o, --output FILE   the file to write; its suffix selects the format\n"
      "      --json          print JSON instead of tables\n"
      "      --version       print the version\n"
      "  -h, --help          print this text");
}

/// The option that getopt_long() has just refused: a whole word, or one letter of several after a dash.
std::string wrong_option(char** argv) {
  const std::string_view word = argv[optind - 1];
  return word.starts_with("--") ? std::string(word) : std::string("-") + static_cast<char>(optopt);
}

void check(const ToolArguments& line, const ToolCommand& command) {
  const std::string usage = usage_of(command);
  const std::string name = std::string(command.name) + ": ";
  for (const std::string& file : line.files)
    if (file.empty()) refuse(name + "the name of a file is empty", usage);
  if (line.files.size() < command.least) refuse(name + "the name of a file is missing", usage);
  if (line.files.size() > command.most)
    refuse(name + "\"" + line.files[command.most] + "\" is one argument too many", usage);
  if (command.output && line.output.empty()) refuse(name + "--output needs the name of the file to write", usage);
  if (!command.output && !line.output.empty()) refuse(name + "takes no --output", usage);
  if (line.json && !command.json) refuse(name + "takes no --json", usage);
}

}  // namespace

std::optional<ToolArguments> read_arguments(int argc, char** argv) {
  constexpr std::array<option, 5> options{{{"output", required_argument, nullptr, 'o'},
                                           {"json", no_argument, nullptr, 'j'},
                                           {"version", no_argument, nullptr, 'v'},
                                           {"help", no_argument, nullptr, 'h'},
                                           {nullptr, 0, nullptr, 0}}};
  ToolArguments line;
  for (int found = 0; (found = getopt_long(argc, argv, ":o:h", options.data(), nullptr)) != -1;) {
    switch (found) {
      case 'o':
        line.output = optarg;
        break;
      case 'j':
        line.json = true;
        break;
      case 'v':
        std::puts("hvd-timeline " HVD_VERSION);
        return std::nullopt;
      case 'h':
        print_help();
        return std::nullopt;
      case ':':
        refuse(std::string(argv[optind - 1]) + " needs a value", "hvd-timeline --help");
      default:
        refuse("there is no such option: " + wrong_option(argv), "hvd-timeline --help");
    }
  }
  if (optind < argc) line.command = argv[optind++];
  const ToolCommand& command = command_named(line.command);
  line.files.assign(argv + optind, argv + argc);
  check(line, command);
  return line;
}

}  // namespace hvd::timeline
