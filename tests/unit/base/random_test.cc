#include "base/random.h"

#include <doctest/doctest.h>

#include <set>

using namespace hvd;

TEST_CASE("random: letters of the alphabet, as many as asked for, never twice the same") {
  CHECK(random_letters(0).empty());
  std::set<char> seen;
  for (const char c : random_letters(5000)) seen.insert(c);
  CHECK(std::string(seen.begin(), seen.end()) == "234567abcdefghijklmnopqrstuvwxyz");
  CHECK(random_letters(26) != random_letters(26));
}
