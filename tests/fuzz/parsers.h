/// @file parsers.h — everything that reads text or bytes from outside, as one table for the fuzzers.
#pragma once
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::fuzz {

/// A parser.  run() may throw hvd::Error, which is how parsers refuse; anything else, and any result that does not
/// survive being written and read again, is a bug.
struct Parser {
  const char* name;  ///< also of its folder of seeds, tests/fuzz/seeds/NAME
  void (*run)(const std::string& bytes);
  /// Seeds of formats that we write ourselves, as written today; may be null.
  std::vector<std::string> (*samples)() = nullptr;
};

/// Whatever was accepted makes sense; else the fuzzer has found something.
inline void hold(bool good) {
  if (!good) std::abort();
}

const std::vector<Parser>& parsers();
/// Its parts that have files of their own: what ranks say to each other; streams and files; what goes between hosts;
/// what a rank's process says to its host.
std::vector<Parser> runtime_parsers();
std::vector<Parser> stream_parsers();
std::vector<Parser> message_parsers();
std::vector<Parser> meeting_parsers();

/// nullptr: there is none of that name.
const Parser* find_parser(std::string_view name);

/// Runs it; what it refuses counts as well parsed.
void feed(const Parser& parser, const std::string& bytes);

}  // namespace hvd::fuzz
