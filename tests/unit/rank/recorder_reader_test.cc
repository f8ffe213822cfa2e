#include "rank/diagnostics/recorder_reader.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

using hvd::rank::RecorderReader;
using hvd::wire::StepRecord;

namespace {

void put(RecorderReader& reader, std::int64_t from, std::int64_t to) {
  for (std::int64_t n = from; n <= to; ++n) reader.data()->steps.put({.number = n});
}

}  // namespace

TEST_CASE("recorder reader: each step once, in order, in blocks") {
  RecorderReader reader;
  REQUIRE(reader.fd() >= 0);
  CHECK(reader.next_steps().empty());
  put(reader, 1, 600);
  std::int64_t number = 0;
  for (const std::size_t block : {256u, 256u, 88u, 0u}) {
    const auto steps = reader.next_steps();
    CHECK(steps.size() == block);
    for (const StepRecord& s : steps) CHECK(s.number == ++number);
  }
}

TEST_CASE("recorder reader: what was overwritten is left out") {
  RecorderReader reader;
  put(reader, 1, 3000);
  const auto steps = reader.next_steps();
  REQUIRE(!steps.empty());
  CHECK(steps.front().number == 3000 - 1024 + 1);
}

TEST_CASE("recorder reader: a program that asks for the report gets the newest whole one") {
  RecorderReader reader;
  CHECK(!reader.wants_report());
  CHECK(reader.data()->report.newest().empty());
  reader.data()->report.wanted.store(1);
  CHECK(reader.wants_report());
  CHECK(!reader.wants_report());  // hvdrun has the report
  for (int i = 0; i < 100; ++i) {
    const std::string text(static_cast<std::size_t>(i * 330), static_cast<char>('a' + i % 26));
    reader.give_report(text);
    CHECK((reader.data()->report.newest() == text));  // compared as a bool: doctest would print a page of text
  }
  const std::string last = reader.data()->report.newest();
  reader.give_report(std::string(hvd::wire::LiveReportText::most + 1, 'x'));
  CHECK((reader.data()->report.newest() == last));  // too long: the older report stays
}

TEST_CASE("recorder reader: a report is read whole while others are written") {
  RecorderReader reader;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (int i = 0; i < 2000; ++i)
      reader.give_report(std::string(static_cast<std::size_t>(1 + i % 7000), static_cast<char>('a' + i % 26)));
    over = true;
  });
  while (!over) {
    const std::string text = reader.data()->report.newest();
    CHECK(text.find_first_not_of(text.substr(0, 1)) == std::string::npos);
  }
  writer.join();
}

TEST_CASE("recorder reader: garbage in the memory is never more than a ring's worth of work") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    RecorderReader reader;
    put(reader, 1, i);
    (void)reader.next_steps();
    auto* const words = reinterpret_cast<std::uint64_t*>(reader.data());
    const std::size_t count = hvd::wire::recorder_bytes / 8;
    if (i % 4 == 0) {
      for (std::size_t w = 0; w < count; ++w) words[w] = random();
    } else if (i % 4 == 1) {
      std::memset(words, 0xff, count * 8);
    } else {
      for (int changed = 0; changed < 50; ++changed) words[random() % (i % 4 == 2 ? 64 : count)] = random() % 5000;
    }
    std::size_t all = 0;
    for (int block = 0; block < 20; ++block) all += reader.next_steps().size();
    CHECK(all <= 1024);
  }
}

TEST_CASE("recorder reader: garbage among the operations is bounded, and names stay text") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 50; ++i) {
    RecorderReader reader;
    auto* const words = reinterpret_cast<std::uint64_t*>(&reader.data()->operations);
    for (std::size_t w = 0; w < sizeof(hvd::wire::RecordedOperations) / 8; ++w) words[w] = random();
    if (i % 2) reader.data()->operations.taken.store(random() % 10000);
    if (i % 2)
      for (std::uint64_t n = 1; n < 10000; ++n) reader.data()->operations.slots[n % 4096].turn.store(n);
    const auto all = reader.last_operations(100000, 1);
    CHECK(all.last.size() <= 4096);
    CHECK(hvd::wire::rank_operations_from_json(to_json(all)).last.size() == all.last.size());
  }
}
