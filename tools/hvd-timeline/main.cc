/// @file main.cc — hvd-timeline: joins and summarises timelines.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "merge.h"
#include "timeline_diff.h"
#include "timeline_report.h"
#include "wire/shared/operation_record.h"

namespace {

constexpr std::size_t most_bytes = 512u << 20;

/// 1: the timelines differ.
int tell_difference(const std::string& path) {
  const std::vector<std::string> lines =
      difference_between(hvd::wire::operations_of_file(hvd::read_file(path, most_bytes))).lines;
  for (const std::string& line : lines) std::puts(line.c_str());
  if (lines.empty()) std::puts("no rank waits for an operation that another has not submitted");
  if (std::fflush(stdout) != 0) return static_cast<int>(hvd::Code::unavailable);
  return lines.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Works on the timelines that hvdrun and Horovod-style programs write (Chrome trace JSON, or Perfetto's "
      ".pftrace).\n"
      "Look at one in https://ui.perfetto.dev or chrome://tracing.",
      "hvd-timeline");
  app.set_version_flag("--version", "hvd-timeline " HVD_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);

  std::vector<std::string> inputs;
  std::string output;
  CLI::App* merge = app.add_subcommand("merge", "Join the files that ranks wrote without hvdrun into one");
  merge->add_option("FILE", inputs, "timeline.json timeline.rank1.json …")->required();
  merge->add_option("-o,--output", output, "The file to write")->required();

  std::string input;
  CLI::App* convert = app.add_subcommand("convert", "Write a timeline in the other format, .json or .pftrace");
  convert->add_option("FILE", input, "A timeline, whole or cut off")->required();
  convert->add_option("-o,--output", output, "The file to write; its ending says the format")->required();

  bool json = false;
  CLI::App* report =
      app.add_subcommand("report", "Count and time operations, negotiations and phases; name the ranks that come late");
  report->add_option("FILE", input, "A timeline, whole or cut off")->required();
  report->add_flag("--json", json, "Print JSON instead of tables");

  std::string second;
  CLI::App* diff = app.add_subcommand("diff", "Compare two timelines: what takes longer, and which ranks come later");
  diff->add_option("FIRST", input, "A timeline, whole or cut off")->required();
  diff->add_option("SECOND", second, "Another one, of the same program")->required();
  diff->add_flag("--json", json, "Print JSON instead of tables");

  CLI::App* desync = app.add_subcommand("desync", "Name the first operation in which the ranks of a job differ");
  desync->add_option("FILE", input, "What hvdrun kept of a job that hung or failed: JOB.ops")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : static_cast<int>(hvd::Code::usage); }
  if (merge->parsed() || convert->parsed()) {
    for (const std::string& warning :
         merge->parsed() ? hvd::timeline::merge(inputs, output) : hvd::timeline::convert(input, output))
      std::fprintf(stderr, "hvd-timeline: %s\n", hvd::printable(warning).c_str());
    return 0;
  }
  if (desync->parsed()) return tell_difference(input);
  const auto told = [json](const auto& made) { return json ? to_json(made) : to_text(made); };
  const std::string text =
      diff->parsed() ? told(hvd::timeline::make_diff(input, second)) : told(hvd::timeline::make_report(input));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : static_cast<int>(hvd::Code::unavailable);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "hvd-timeline: %s%s%s%s\n", hvd::printable(error.what()).c_str(),
                 error.hint.empty() ? "" : " (", error.hint.c_str(), error.hint.empty() ? "" : ")");
    return static_cast<int>(error.code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hvd-timeline: %s\n", hvd::printable(error.what()).c_str());
    return static_cast<int>(hvd::Code::internal);
  }
}
