/// @file parsers.h — the table of all parsers of text or bytes from outside, for the fuzzers.
#pragma once
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::fuzz {

/// A parser. run() may throw hvd::Error, which is a parser's refusal. Anything else is a bug. A result that does not
/// survive being written and read again is a bug, too.
struct Parser {
  const char* name;  ///< also the name of its folder of seeds, tests/fuzz/seeds/NAME
  void (*run)(const std::string& bytes);
  /// Seeds of formats that hvdrun itself writes, in today's format; may be null.
  std::vector<std::string> (*samples)() = nullptr;
};

/// An accepted input makes sense; otherwise the fuzzer has found a bug.
inline void hold(bool good) {
  if (!good) std::abort();
}

const std::vector<Parser>& parsers();
/// The parts of the table that have files of their own: messages between ranks; streams and files; messages between
/// hosts; messages of a rank's process to its host.
std::vector<Parser> runtime_parsers();
std::vector<Parser> stream_parsers();
std::vector<Parser> message_parsers();
std::vector<Parser> meeting_parsers();

/// Returns nullptr if no parser has that name.
const Parser* find_parser(std::string_view name);

/// Runs the parser; a refusal counts as success.
void feed(const Parser& parser, const std::string& bytes);

}  // namespace hvd::fuzz
