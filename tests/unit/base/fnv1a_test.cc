#include "base/fnv1a.h"

#include <doctest/doctest.h>

TEST_CASE("fnv1a: the published values") {
  CHECK(hvd::fnv1a("") == 0xcbf29ce484222325);
  CHECK(hvd::fnv1a("a") == 0xaf63dc4c8601ec8c);
  CHECK(hvd::fnv1a("foobar") == 0x85944171f73967e8);
  CHECK(hvd::fnv1a("bar", hvd::fnv1a("foo")) == hvd::fnv1a("foobar"));
}
