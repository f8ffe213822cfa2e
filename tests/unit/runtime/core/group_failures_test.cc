// A group fails on other ranks while this rank submits its tensors one by one.
#include "core/operation/group_failures.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace hvd::testing {

using core::CheckedRequest;
using core::GroupFailures;
using core::NameEntry;

namespace {

std::vector<CheckedRequest> one(const char* name, std::uint32_t group_size = 0) {
  std::vector<CheckedRequest> all(1);
  all[0].name = name;
  all[0].signature.kind = static_cast<std::uint8_t>(Kind::allreduce);
  all[0].signature.group_size = group_size;
  return all;
}

NameEntry& named(NameEntry& e, const char* name, std::uint32_t group_size = 0) {
  e.name = name;
  e.group_size = group_size;
  return e;
}

}  // namespace

TEST_CASE("group failures: until the caller has seen one, what it submits counts as from before") {
  GroupFailures failures;
  NameEntry a, grouped;
  named(a, "a"), named(grouped, "g", 2);
  CHECK_FALSE(failures.any());
  CHECK(failures.submitted_at(a, 10) == 10);

  failures.operation_failed(77, 5);
  CHECK(failures.any());
  CHECK(failures.submitted_at(a, 10) == 4);
  CHECK(failures.submitted_at(grouped, 10) == 10);  // a group is the caller's own, new one
  failures.outdate("a", 8, 1234);                   // the announcement under this name from before command 8 has ended
  CHECK(failures.submitted_at(a, 10) == 8);

  failures.forget_seen([](std::int64_t handle) { return handle == 77; });
  CHECK(failures.any());
  failures.forget_seen([](std::int64_t) { return false; });
  CHECK_FALSE(failures.any());
  CHECK(failures.submitted_at(a, 10) == 10);
}

TEST_CASE("group failures: a tensor of the failed group is refused while its failure is unseen") {
  GroupFailures failures;
  failures.group_failed(1234, "a text");  // no tensor of this rank had failed: there is nothing to see
  CHECK_FALSE(failures.any());
  failures.operation_failed(77, 5);
  failures.group_failed(1234, "the group has failed");
  failures.outdate("a", 8, 1234);
  failures.outdate("b", 8, 99);
  CHECK_THROWS_WITH_AS(failures.refuse(one("a"), 3), doctest::Contains("in no group on rank 3"), Error);
  CHECK_THROWS_WITH_AS(failures.refuse(one("a"), 3), doctest::Contains("the group has failed"), Error);
  CHECK_NOTHROW(failures.refuse(one("a", 2), 3));
  CHECK_NOTHROW(failures.refuse(one("b"), 3));
  CHECK_NOTHROW(failures.refuse(one("c"), 3));

  // A later command `fail` that ended nothing here changes nothing about the older failure.
  failures.operation_failed(0, 9);
  CHECK_THROWS_AS(failures.refuse(one("a"), 3), Error);
  failures.forget_seen([](std::int64_t) { return false; });
  CHECK_NOTHROW(failures.refuse(one("a"), 3));
}

TEST_CASE("group failures: what the caller has seen is not kept, and of the rest so much") {
  GroupFailures failures;
  const auto fail = [&](int i, std::int64_t handle) {
    const auto command = static_cast<std::uint64_t>(3 * i + 1);
    failures.operation_failed(handle, command);
    failures.group_failed(command, "a text");
    failures.outdate("t" + std::to_string(i), command + 2, command);
    failures.outdate("u" + std::to_string(i), command + 2, command);
  };
  for (int i = 0; i < 50'000; ++i) {
    fail(i, i + 1);
    failures.forget_seen([](std::int64_t) { return false; });
    CHECK(failures.known() == 0);
  }
  for (int i = 0; i < 1000; ++i) failures.outdate("v" + std::to_string(i), 1, 2);  // nothing unseen: not kept
  CHECK(failures.known() == 0);
  for (int i = 0; i < 50'000; ++i) fail(i, 7);
  CHECK(failures.known() < 20'000);
}

}  // namespace hvd::testing
