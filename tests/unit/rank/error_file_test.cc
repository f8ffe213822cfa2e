#include "rank/diagnostics/death/error_file.h"

#include <doctest/doctest.h>

#include <fstream>
#include <string>

using namespace hvd::rank;

TEST_CASE("what torch's @record wrote: the traceback, else the message; what is no such file says nothing") {
  const std::string stack = R"("extraInfo": {"py_callstack": "Traceback\n  line", "timestamp": "1"})";
  CHECK(recorded_error(R"({"message": {"message": "ValueError: bad", )" + stack + "}}") == "Traceback\n  line");
  CHECK(recorded_error(R"({"message": {"message": "ValueError: bad"}})") == "ValueError: bad");
  CHECK(recorded_error(R"({"message": {"message": "ValueError: bad", "extraInfo": 3}})") == "ValueError: bad");
  CHECK(recorded_error(R"({"message": "ValueError: bad"})") == "ValueError: bad");
  for (const char* text : {"", "{", "[]", "{}", R"({"message": 1})", R"({"message": {"message": []}})", "null"})
    CHECK(recorded_error(text).empty());
}

TEST_CASE("error file: written by its path, again if need be; what does not end within 64 KiB is no JSON") {
  const ErrorFile file;
  CHECK(file.read().empty());
  for (const char* said : {"a longer one than the other", "short"}) {
    std::ofstream(file.path()) << R"({"message": ")" << said << R"("})";
    CHECK(file.read() == said);
  }
  std::ofstream(file.path()) << R"({"message": ")" << std::string(1 << 20, 'x') << R"("})";
  CHECK(file.read().empty());
}
