#include "base/text.h"

#include <doctest/doctest.h>

#include "base/files/sha256.h"

using namespace hvd;
using Strings = std::vector<std::string>;

TEST_CASE("text: split keeps empty pieces, words does not") {
  CHECK(split("a,,b", ',') == Strings{"a", "", "b"});
  CHECK(split("", ',') == Strings{""});
  CHECK(words("  a \t b ") == Strings{"a", "b"});
  CHECK(words("").empty());
  CHECK(join(split("a,,b", ','), ",") == "a,,b");
}

TEST_CASE("text: numbers take the whole string or nothing") {
  CHECK(to_integer("-12") == -12);
  CHECK_FALSE(to_integer("12x"));
  CHECK_FALSE(to_integer(""));
  CHECK_FALSE(to_integer("99999999999999999999"));
  CHECK(to_number("0.5") == 0.5);
  CHECK_FALSE(to_number("nan"));
  CHECK(to_boolean("Yes") == true);
  CHECK(to_boolean("off") == false);
  CHECK_FALSE(to_boolean("2"));
}

TEST_CASE("text: quoting for a shell") {
  CHECK(shell_quote("a-b_c=1") == "a-b_c=1");
  CHECK(shell_quote("") == "''");
  CHECK(shell_quote("it's $x") == "'it'\\''s $x'");
}

TEST_CASE("text: ranges and counts") {
  CHECK(ranges({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
  CHECK(ranges({}) == "");
  CHECK(count_of(1, "rank") == "1 rank");
  CHECK(count_of(0, "rank") == "0 ranks");
}

TEST_CASE("text: what one rank or several do") {
  CHECK(ranks_text({1}) == "rank 1");
  CHECK(ranks_text({0, 1, 3}) == "ranks 0-1,3");
  CHECK(ranks_text({1}, "is in t.py:8") == "rank 1 is in t.py:8");
  CHECK(ranks_text({1, 2}, "is in t.py:8, which ends by itself") == "ranks 1-2 are in t.py:8, which ends by itself");
  CHECK(ranks_text({0, 2}, "has not submitted it; its last was grad") ==
        "ranks 0,2 have not submitted it; their last was grad");
  CHECK(plural("does not answer") == "do not answer");
  CHECK(plural("runs") == "run");
  CHECK(plural("waits for a disk") == "wait for a disk");
}

TEST_CASE("sha256: the standard's examples, whole and in pieces") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1000000, 'a');
  Sha256 hash;
  for (std::size_t i = 0; i < million.size(); i += 977) hash.add(std::string_view(million).substr(i, 977));
  CHECK(hash.hex() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("text: what others wrote is one line, and readable") {
  CHECK(printable("Grüße, 世界 \t🙂") == "Grüße, 世界 \t🙂");
  CHECK(printable("a\nhvdrun: all is well\r\x1b[2K\x7f") == "a\\nhvdrun: all is well\\r\\x1b[2K\\x7f");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\u009b2J");  // C1: another form of ESC [
  CHECK(printable("\xe2\x80\xae"
                  "evil\xe2\x80\xa8.") == "\\u202eevil\\u2028.");  // right to left; a line's end
  CHECK(printable("\xff\xc3(\xed\xa0\x80\xf5\xe2\x82") == "\\xff\\xc3(\\xed\\xa0\\x80\\xf5\\xe2\\x82");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable_lines("a\n\x1b"
                        "b\n") == "a\n\\x1bb\n");
}

TEST_CASE("text: amounts of memory for people") {
  CHECK(human_bytes(0) == "0 MiB");
  CHECK(human_bytes(512ll << 20) == "512 MiB");
  CHECK(human_bytes(1536ll << 20) == "1.5 GiB");
}

TEST_CASE("text: shortened keeps whole characters") {
  CHECK(shortened("abcdef", 6) == "abcdef");
  CHECK(shortened("abcdefg", 6) == "abc…");
  CHECK(shortened("世界世界", 9) == "世界…");
  CHECK(shortened("世界世界", 8) == "世…");
  CHECK(shortened("🙂🙂", 7) == "🙂…");
}
