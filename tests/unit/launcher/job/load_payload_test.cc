#include "launcher/job/load_payload.h"

#include <doctest/doctest.h>

#include "../errors.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::PayloadKind;

TEST_CASE("payload: what the words name") {
  CHECK(classify(PayloadPrefix::plain, {"job.pkl"}).kind == PayloadKind::pickle);
  CHECK(classify(PayloadPrefix::plain, {"train.py", "-x"}).kind == PayloadKind::script);
  CHECK(classify(PayloadPrefix::plain, {"app.pyz"}).kind == PayloadKind::script);
  CHECK(classify(PayloadPrefix::plain, {"python", "train.py"}).kind == PayloadKind::command);
  CHECK(classify(PayloadPrefix::module, {"pkg.train"}).kind == PayloadKind::module);
  CHECK(classify(PayloadPrefix::dashes, {"train.py"}).kind == PayloadKind::command);
  CHECK(classify(PayloadPrefix::plain, {"train.py", "a", "b"}).args == std::vector<std::string>{"a", "b"});
  CHECK(error_of([] { classify(PayloadPrefix::none, {}); }).starts_with("nothing to run"));
  CHECK(error_of([] { classify(PayloadPrefix::module, {}); }) == "-m: the module's name is missing");
}

TEST_CASE("payload: bytes that are no pickled callable") {
  using namespace std::string_literals;
  CHECK(pickle_fault("\x80\x05N.").what == "");
  CHECK(pickle_fault("(dp0\n.").what == "");
  CHECK(pickle_fault("").what == "is empty");
  CHECK(pickle_fault("\x80\x05N").what == "is cut off: a pickle ends with a full stop");
  CHECK(pickle_fault("\x80\x09.").what == "uses pickle protocol 9, which this version does not know");
  CHECK(pickle_fault("PK\x03\x04...").what == "is not a pickle but a zip archive, as torch.save() writes for weights");
  CHECK(pickle_fault("\x1f\x8b\x08").what == "is not a pickle but gzip data");
  CHECK(pickle_fault("import os\n").hint == "if it is Python source, name it .py");
  CHECK(pickle_fault("\0\1\2"s).what == "is not a pickle");
  CHECK(pickle_fault("\x80\x04\x95\x03\0\0\0\0\0\0\0N0."s).what == "");
  CHECK(pickle_fault("\x80\x04\x95\x04\0\0\0\0\0\0\0N0."s).what ==
        "is damaged: its first frame is longer than the file");
  CHECK(pickle_fault("\x80\x04\x95\x04\0\0\0\0\0\0\0N0."s, 1000).what == "");
  CHECK(pickle_fault("\x80\x04"s + std::string(100, '\0') + ".").what == "is not a pickle");
}

TEST_CASE("payload: the Python file that it runs") {
  const auto file = [](PayloadPrefix prefix, const std::vector<std::string>& words) {
    return wire::python_file(classify(prefix, words));
  };
  CHECK(file(PayloadPrefix::plain, {"train.py", "-c"}) == "train.py");
  CHECK(file(PayloadPrefix::plain, {"job.pkl"}) == "");
  CHECK(file(PayloadPrefix::module, {"pkg.train"}) == "");
  CHECK(file(PayloadPrefix::plain, {"python", "train.py", "x.py"}) == "train.py");
  CHECK(file(PayloadPrefix::dashes, {"/usr/bin/python3.11", "-u", "-Wdefault", "-X", "dev", "-W", "error", "a.py"}) ==
        "a.py");
  CHECK(file(PayloadPrefix::plain, {"python3", "--check-hash-based-pycs", "never", "folder"}) == "folder");
  CHECK(file(PayloadPrefix::plain, {"python3", "-m", "pkg"}) == "");
  CHECK(file(PayloadPrefix::plain, {"python3", "-um", "pkg"}) == "");
  CHECK(file(PayloadPrefix::plain, {"python3", "-c", "pass", "a.py"}) == "");
  CHECK(file(PayloadPrefix::plain, {"python3", "-"}) == "");
  CHECK(file(PayloadPrefix::plain, {"python3"}) == "");
  CHECK(file(PayloadPrefix::plain, {"pythonic", "a.py"}) == "");
  CHECK(file(PayloadPrefix::plain, {"sh", "a.py"}) == "");
}

TEST_CASE("payload: a Python that reads its program from its standard input") {
  const auto reads = [](const std::vector<std::string>& words) {
    return wire::is_read_from_input(classify(PayloadPrefix::plain, words));
  };
  CHECK(reads({"python", "-"}));
  CHECK(reads({"python3", "-u", "-", "a.py"}));
  CHECK(reads({"/usr/bin/python3.11"}));
  CHECK(reads({"python", "-X", "dev", "-W", "error"}));
  CHECK_FALSE(reads({"python", "a.py", "-"}));
  CHECK_FALSE(reads({"python", "-c", "-"}));
  CHECK_FALSE(reads({"python", "-um", "pkg"}));
  CHECK_FALSE(reads({"python", "-V"}));
  CHECK_FALSE(reads({"python", "--help-all"}));
  CHECK_FALSE(reads({"sh", "-"}));
}
