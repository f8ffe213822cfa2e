// Names and ids of a process set on one rank.
#include "core/operation/name_table.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "common/read_ahead.h"
#include "core/operation/operation.h"

namespace hvd::testing {

using core::CheckedRequest;
using core::NameEntry;
using core::NameTable;

namespace {

std::vector<CheckedRequest> requests(const std::vector<const char*>& names) {
  std::vector<CheckedRequest> all(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    all[i].name = names[i];
    all[i].signature.kind = static_cast<std::uint8_t>(Kind::allreduce);
  }
  return all;
}

void end(std::span<NameEntry* const> entries) {
  for (NameEntry* e : entries) e->in_flight = false;
}

}  // namespace

TEST_CASE("name table: all of a call's names are taken, or none") {
  NameTable table;
  const auto abc = requests({"a", "b", "c"});
  const auto taken = table.take(abc);
  REQUIRE(taken.size() == 3);
  NameEntry* const b = taken[1];
  CHECK(b == table.find("b"));
  CHECK(b->in_flight);
  end(taken);
  for (std::uint32_t id = 0; id < 3; ++id) table.assign(id, negotiate::no_slot, abc[id].name);

  CHECK_THROWS_WITH_AS(table.take(requests({"d", "b", "d"})), doctest::Contains("the same name twice"), Error);
  CHECK_FALSE(b->in_flight);
  CHECK(table.find("d") == nullptr);  // it has no id: no other event would remove it

  b->in_flight = true;
  CHECK_THROWS_WITH_AS(table.take(abc), doctest::Contains("already under way"), Error);
  CHECK_FALSE(table.find("a")->in_flight);
  CHECK(b->in_flight);
}

TEST_CASE("name table: a name without an id goes when its operation has failed") {
  NameTable table;
  const auto taken = table.take(requests({"a", "b", "c"}));
  table.assign(5, negotiate::no_slot, "b");
  table.forget_unknown(*taken[0]);
  CHECK(table.find("a") != nullptr);  // in flight
  end(taken);
  table.forget_unknown(*taken[1]);
  CHECK(table.find("b") != nullptr);  // "b": its eviction is pending
  table.forget_unknown(*table.find("a"));
  CHECK(table.find("a") == nullptr);
}

TEST_CASE("name table: the same entries in any order of names, also after some were forgotten") {
  NameTable table;
  const std::vector<std::vector<const char*>> steps = {{"a", "b", "c"}, {"a", "b", "c"}, {"c", "a", "b"},
                                                       {"a", "b", "c"}, {"b"},           {"c", "b", "a"}};
  NameEntry* const a = &table.entry("a");
  for (int round = 0; round < 3; ++round) {
    for (const auto& names : steps) {
      const auto taken = table.take(requests(names));
      for (std::size_t i = 0; i < names.size(); ++i) CHECK(taken[i]->name == names[i]);
      end(taken);
    }
    table.forget(*table.find("b"));  // entries still point to it as the next one
    CHECK(table.find("b") == nullptr);
  }
  CHECK(table.find("a") == a);
}

TEST_CASE("name table: one name a call, while the names of earlier calls are forgotten") {
  NameTable table;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < 3 * read_ahead; ++i)
    names.push_back("a.name.longer.than.a.short.string." + std::to_string(i));
  for (std::size_t round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto taken = table.take(requests({names[i].c_str()}));
      CHECK(taken[0]->name == names[i]);
      end(taken);
      // Shorter than, equal to and longer than the number of remembered names.
      const std::size_t distance = round * read_ahead / 2;
      if (distance > 0 && i >= distance && i % 3 == 0) table.forget(*table.find(names[i - distance]));
    }
  }
}

TEST_CASE("name table: names that were made count by kind, and a refused call makes none") {
  NameTable table;
  auto nameless = requests({"", "x"});
  end(table.take(nameless));
  CHECK(table.find("allreduce.noname.0"));
  table.find("x")->in_flight = true;
  CHECK_THROWS_AS(table.take(nameless), Error);
  table.find("x")->in_flight = false;
  const NameEntry* const made = table.take(nameless)[0];
  CHECK(made == table.find("allreduce.noname.1"));
  table.find("allreduce.noname.1")->in_flight = false;
  table.find("x")->in_flight = false;
  table.restart_made_names();
  CHECK(table.take(nameless)[0] == table.find("allreduce.noname.0"));
}

TEST_CASE("name table: ids") {
  NameTable table;
  NameEntry& e = table.assign(7, 128, "a");
  CHECK((e.id == 7 && e.slot == 128 && e.round == 0));
  CHECK(table.release_id(7) == &e);
  CHECK(table.release_id(7) == nullptr);
  CHECK(table.release_id(8) == nullptr);
}

TEST_CASE("name table: what is in flight, for messages") {
  NameTable table;
  const auto any = [](const NameEntry&) { return true; };
  CHECK(table.first_in_flight(any) == nullptr);
  core::Operation op, join;
  for (const char* name : {"e", "b", "d", "c", "a", "f", "g"}) {
    NameEntry& e = table.entry(name);
    e.in_flight = *name != 'a';
    e.operation = *name == 'b' ? &join : &op;
  }
  CHECK(table.first_in_flight(any)->name == "b");
  CHECK(table.first_in_flight([&](const NameEntry& e) { return e.operation != &join; })->name == "c");
  CHECK(table.some_in_flight().ends_with(", and 1 more"));
  int count = 0;
  table.in_flight([&](const NameEntry&) { ++count; });
  CHECK(count == 6);
}

}  // namespace hvd::testing
