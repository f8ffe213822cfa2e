#include "recorder/steps/operation_recorder.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using hvd::recorder::OperationRecorder;
using hvd::wire::OperationNames;
using hvd::wire::OperationSlot;
using hvd::wire::RecorderMemory;

namespace {

std::unique_ptr<RecorderMemory> zeroed() { return std::make_unique<RecorderMemory>(); }

std::string name_in(const RecorderMemory& memory, std::uint64_t at) {
  const OperationNames& names = memory.operations.names;
  REQUIRE(names.written.load() - at <= names.size);
  return &names.text[at % names.size];
}

}  // namespace

TEST_CASE("operation recorder: the last operations, with how they went on") {
  const auto memory = zeroed();
  OperationRecorder r(memory.get());
  r.begin_epoch(2);
  std::uint64_t name_at = 0;
  const std::uint32_t first = r.submitted({7, 3, 1, 6, 4096}, "grad/a", name_at, 10);
  const std::uint32_t second = r.submitted({8, 3, 1, 6, 4096}, "grad/a", name_at, 11);
  CHECK(second == first + 1);
  r.began(first, 20);
  r.ended(first, 5, 30);
  const OperationSlot& slot = memory->operations.slots[first];
  CHECK(slot.turn == first);
  CHECK(slot.sequence == (7 | 2ull << 48));
  CHECK(slot.submit_ns == 10);
  CHECK(slot.begin_ns == 20);
  CHECK(slot.end_ns == 30);
  CHECK(slot.what == (1 | 6 << 8 | 3 << 16 | 5ull << 32));
  CHECK(name_in(*memory, slot.name_at) == "grad/a");
  CHECK(memory->operations.slots[second].name_at == slot.name_at);  // written once
  r.began(0, 40);                                                   // an operation that was not recorded
  r.ended(0, 0, 40);
  CHECK(memory->operations.slots[0].end_ns == 0);
}

TEST_CASE("operation recorder: an operation that younger ones have overwritten leaves them alone") {
  const auto memory = zeroed();
  OperationRecorder r(memory.get());
  std::uint64_t name_at = 0;
  const std::uint32_t old = r.submitted({}, "a", name_at, 1);
  for (int i = 0; i < 4096; ++i) r.submitted({}, "a", name_at, 1);
  r.ended(old, 0, 9);
  for (const OperationSlot& slot : memory->operations.slots) CHECK(slot.end_ns == 0);
}

TEST_CASE("operation recorder: names that are always new push out the oldest, not those in use") {
  const auto memory = zeroed();
  OperationRecorder r(memory.get());
  std::uint64_t kept = 0;
  std::uint32_t last = r.submitted({}, "kept", kept, 1);
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t fresh = 0;
    const std::string name = "unnamed." + std::to_string(i) + std::string(static_cast<std::size_t>(i % 200), 'x');
    const std::uint32_t number = r.submitted({}, name, fresh, 1);
    CHECK(name_in(*memory, memory->operations.slots[number % 4096].name_at) == name.substr(0, 120));
    last = r.submitted({}, "kept", kept, 1);
    CHECK(name_in(*memory, memory->operations.slots[last % 4096].name_at) == "kept");
  }
}

TEST_CASE("operation recorder: many threads, and nothing without memory") {
  const auto memory = zeroed();
  OperationRecorder r(memory.get());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::uint64_t name_at = 0;
      for (int i = 0; i < 5000; ++i) {
        const std::uint32_t n = r.submitted({}, "name", name_at, r.now());
        r.began(n, r.now());
        r.ended(n, 0, r.now());
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(memory->operations.taken == 20000);
  OperationRecorder off(nullptr);
  std::uint64_t name_at = 0;
  CHECK(off.submitted({}, "a", name_at, off.now()) == 0);
  off.began(0, 0);
  off.ended(0, 0, 0);
}
