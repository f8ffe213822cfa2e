#include "launcher/verdict/exception_line.h"

#include <doctest/doctest.h>

using hvd::launcher::exception_line;

namespace {
const std::string stack =
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\n    ^^^\n";
}

TEST_CASE("exception line: the exception's own line, whatever follows it") {
  CHECK(exception_line(stack + "ValueError: boom\n") == "ValueError: boom");
  CHECK(exception_line(stack + "RuntimeError: CUDA error: device-side assert\nErrors may be reported later.\n") ==
        "RuntimeError: CUDA error: device-side assert");
  CHECK(exception_line(stack + "E: bad\nhvdrun: all is well") == "E: bad");
  CHECK(exception_line(stack + "OSError: gone\n[W1126 group.cpp:1] Warning: a group is left\n") == "OSError: gone");
  CHECK(exception_line(stack + "ValueError: not here\n  in \"cfg.yaml\", line 3") == "ValueError: not here");
  CHECK(exception_line(
            "Traceback (most recent call last):\n  File \"a\", line 1\n    x =\n       ^\nSyntaxError: no\n") ==
        "SyntaxError: no");
}

TEST_CASE("exception line: the last exception of a chain, the leading one of a group, the worker's own") {
  CHECK(exception_line(stack +
                       "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" +
                       stack + "TypeError: 2\n") == "TypeError: 2");
  CHECK(exception_line("  + Exception Group Traceback (most recent call last):\n  |   File \"a\", line 1\n  |     f()\n"
                       "  | ExceptionGroup: many (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
                       "    | ValueError: a\n    +------------------------------------\n") ==
        "ExceptionGroup: many (2 sub-exceptions): ValueError: a");
  CHECK(
      exception_line("  + Exception Group Traceback (most recent call last):\n  |   File \"a\", line 1\n  |     f()\n"
                     "  | ExceptionGroup: many (3 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
                     "    | Traceback (most recent call last):\n    |   File \"a\", line 2, in f\n    |     g()\n"
                     "    | ValueError: a\n    | see the manual\n    +---------------- 2 ----------------\n"
                     "    | KeyError: 'b'\n    +---------------- 3 ----------------\n"
                     "    | ExceptionGroup: inner (1 sub-exception)\n    +-+---------------- 1 ----------------\n"
                     "      | OSError: gone\n      +------------------------------------\n") ==
      "ExceptionGroup: many (3 sub-exceptions): ValueError: a; KeyError: 'b'; ExceptionGroup: inner (1 sub-exception)");
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n  |   File \"a\", line 1\n  |     f()\n"
      "  | ExceptionGroup: many (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n";
  const std::string second =
      "    +---------------- 2 ----------------\n    | OSError: gone\n    +------------------------------------\n";
  CHECK(exception_line(group +
                       "    | KeyError: 'inner'\n    | \n"
                       "    | The above exception was the direct cause of the following exception:\n    | \n"
                       "    | ValueError: outer\n" +
                       second) == "ExceptionGroup: many (2 sub-exceptions): ValueError: outer; OSError: gone");
  CHECK(exception_line(group +
                       "    | Exception Group Traceback (most recent call last):\n    |   File \"a\", line 2\n"
                       "    | ExceptionGroup: inner (1 sub-exception)\n    +-+---------------- 1 ----------------\n"
                       "      | TypeError: 1\n      +------------------------------------\n    | \n"
                       "    | During handling of the above exception, another exception occurred:\n    | \n"
                       "    | Traceback (most recent call last):\n    |   File \"a\", line 3\n"
                       "    | RuntimeError: late\n    | see the manual\n" +
                       second) == "ExceptionGroup: many (2 sub-exceptions): RuntimeError: late; OSError: gone");
  CHECK(exception_line(stack + "RuntimeError: Caught ValueError in DataLoader worker process 0.\nOriginal " + stack +
                       "ValueError: bad image\n") == "ValueError: bad image");
}

TEST_CASE("exception line: an exception that Python ignored, or a thread had, does not replace the cause") {
  const std::string in_del = "Exception ignored in: <function D.__del__ at 0x7f>\n" + stack + "RuntimeError: in del\n";
  CHECK(exception_line(stack + "ValueError: the cause\nnote 1\n" + in_del) == "ValueError: the cause");
  CHECK(exception_line(stack + "ValueError: the cause\nException in thread Thread-1 (f):\n" + stack + "OSError: b\n") ==
        "ValueError: the cause");
  CHECK(exception_line(in_del) == "RuntimeError: in del");
}

TEST_CASE("exception line: text that is no traceback, or only the beginning of one") {
  CHECK(exception_line("\nfirst\nlast\n") == "first");
  CHECK(exception_line("").empty());
  CHECK(exception_line("Traceback: seen\nValueError: bad\n") == "ValueError: bad");
  CHECK(exception_line("Traceback (most recent call last):\n  File \"a\"") == "File \"a\"");
  CHECK(exception_line(stack + "E: a\x1b[31m\tb\r\n") == "E: a\x1b[31m\tb");
  CHECK(exception_line(stack + "E: a\rhvdrun: all is well\n") == "E: a");
}
