/// hvdrun's output of text from other programs.
#include "launcher/output/printer.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../temp_folder.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("printer: a later rank whose files cannot be made has none; files of ended ranks are closed") {
  const hvd::test::TempFolder folder;
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  PrinterOptions options;
  options.hosts = {"a"};
  options.folder = folder.root / "out";
  Printer printer(options);
  const auto before = descriptors();
  printer.add_rank("a");
  CHECK(descriptors() == before + 2);
  printer.close_files(1);
  CHECK(descriptors() == before);
  printer.rank_file(1, "late\n");
  for (const char* rank : {"rank.2", "rank.3"}) std::ofstream(folder.root / "out" / rank) << "in the way";
  CHECK_NOTHROW(printer.add_rank("a"));
  const std::size_t said = printer.pending_bytes();
  CHECK_NOTHROW(printer.add_rank("a"));
  CHECK(printer.pending_bytes() == said);  // told once
  printer.rank_bytes(3, Printer::out, "");
  CHECK(descriptors() == before);
}

TEST_CASE("printer: no other program's text begins a line of hvdrun's") {
  CHECK(spoken(Error(Code::usage, "x.py", "is not there", "look")) == "hvdrun: x.py: is not there\n        look\n");
  CHECK(spoken(Error(Code::usage, "", "nothing to run")) == "hvdrun: nothing to run\n");
  CHECK(spoken(Error(Code::usage, "a\nhvdrun: b", "is\nhvdrun: well\n        beta: said", "c\nhvdrun: d\x1b[A")) ==
        "hvdrun: a\\nhvdrun: b: is\n        hvdrun: well\n        beta: said\n        c\n        hvdrun: d\\x1b[A\n");
  CHECK(spoken(Error(Code::usage, "", "is not", "look\n        it said: no")) ==
        "hvdrun: is not\n        look\n        it said: no\n");
}
