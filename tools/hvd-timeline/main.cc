/// @file main.cc — hvd-timeline: joins and summarises timelines.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "merge.h"
#include "timeline_diff.h"
#include "timeline_report.h"
#include "tool_arguments.h"
#include "wire/collectives/operation_record.h"

namespace {

constexpr std::size_t most_bytes = 512u << 20;

/// 1: the timelines differ.
int tell_difference(const std::string& path) {
  const std::vector<std::string> lines = [&] {
    try {
      return difference_between(hvd::wire::operations_of_file(hvd::read_file(path, most_bytes))).lines;
    } catch (const hvd::Error& error) {  // says which line is wrong, but not of which file
      throw hvd::Error(error.code, error.where == path ? "" : path, error.what(), error.hint);
    }
  }();
  for (const std::string& line : lines) std::puts(line.c_str());
  if (lines.empty()) std::puts("no rank waits for an operation that another has not submitted");
  if (std::fflush(stdout) != 0) return static_cast<int>(hvd::Code::unavailable);
  return lines.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::optional<hvd::timeline::ToolArguments> line = hvd::timeline::read_arguments(argc, argv);
  if (!line) return 0;
  const std::string& first = line->files.front();
  if (line->command == "desync") return tell_difference(first);
  if (!line->output.empty()) {
    for (const std::string& warning : line->command == "merge" ? hvd::timeline::merge(line->files, line->output)
                                                               : hvd::timeline::convert(first, line->output))
      std::fprintf(stderr, "hvd-timeline: %s\n", hvd::printable(warning).c_str());
    return 0;
  }
  const auto told = [&line](const auto& made) { return line->json ? to_json(made) : to_text(made); };
  const std::string text = line->command == "diff" ? told(hvd::timeline::make_diff(first, line->files.back()))
                                                   : told(hvd::timeline::make_report(first));
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
