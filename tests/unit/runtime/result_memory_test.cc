/// Results that were released are used again, within a limit.
#include "memory/result_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using hvd::memory::ResultMemory;

TEST_CASE("result memory: what was given back comes again, where it fits") {
  ResultMemory memory(8 << 20);
  for (const std::size_t bytes : {std::size_t{100'000}, std::size_t{3} << 20}) {
    void* const first = memory.take(bytes);
    REQUIRE(first != nullptr);
    std::memset(first, 1, bytes);
    memory.give_back(first);
    CHECK(memory.take(bytes - 1000) == first);
    void* const other = memory.take(bytes);
    CHECK(other != first);
    memory.give_back(first);
    void* const small = memory.take(bytes / 4);  // would waste too much
    CHECK(small != first);
    for (void* data : {other, small}) std::free(data);
    memory.clear();
  }
}

TEST_CASE("result memory: no more is kept than the limit, the newest") {
  ResultMemory memory(4 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(memory.take(1 << 20));
  for (void* block : blocks) memory.give_back(block);
  void* const last = memory.take(1 << 20);
  CHECK(std::find(blocks.begin() + 6, blocks.end(), last) != blocks.end());
  memory.give_back(last);
  memory.give_back(memory.take(64 << 20));  // larger than the limit
  memory.give_back(nullptr);
  memory.give_back(memory.take(0));
  memory.give_back(std::malloc(1 << 20));  // any memory of malloc's
}

TEST_CASE("result memory: from several threads") {
  ResultMemory memory(4 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 500; ++i) {
        const std::size_t bytes = static_cast<std::size_t>(70'000 * (1 + (i + t) % 5));
        auto* const data = static_cast<unsigned char*>(memory.take(bytes));
        std::memset(data, t, bytes);
        CHECK((data[0] == t && data[bytes - 1] == t));
        memory.give_back(data);
        if (i % 100 == 0) memory.clear();
      }
    });
  for (std::thread& thread : threads) thread.join();
}
