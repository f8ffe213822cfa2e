/// hvdrun's output of text from other programs.
#include "launcher/output/printer.h"

#include <doctest/doctest.h>

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("printer: no other program's text begins a line of hvdrun's") {
  CHECK(spoken(Error(Code::usage, "x.py", "is not there", "look")) == "hvdrun: x.py: is not there\n        look\n");
  CHECK(spoken(Error(Code::usage, "", "nothing to run")) == "hvdrun: nothing to run\n");
  CHECK(spoken(Error(Code::usage, "a\nhvdrun: b", "is\nhvdrun: well\n        beta: said", "c\nhvdrun: d\x1b[A")) ==
        "hvdrun: a\\nhvdrun: b: is\n        hvdrun: well\n        beta: said\n        c\n        hvdrun: d\\x1b[A\n");
  CHECK(spoken(Error(Code::usage, "", "is not", "look\n        it said: no")) ==
        "hvdrun: is not\n        look\n        it said: no\n");
}
