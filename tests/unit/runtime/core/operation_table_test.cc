// The table of handles under several threads: every operation is reported once, waited for, and recycled once.
#include "core/operation/operation_table.h"

#include <doctest/doctest.h>

#include <deque>
#include <thread>

#include "memory/futex.h"
#include "world_of_threads.h"

namespace hvd::testing {

using core::Operation;
using core::OperationTable;

TEST_CASE("operation: it stays awaited between two pieces of a wait, until its end") {
  hvd::core::RankStatus status;
  OperationTable table{status};
  std::vector<Operation*> ops(2);
  table.take(ops.size(), ops.data());
  const auto now = [] { return memory::now_ns(); };
  CHECK(table.awaited(now()).empty());
  table.sleep(*ops[1], 1000);
  CHECK(table.awaited(now()) == std::vector<const Operation*>{ops[1]});
  CHECK(table.awaited(now() + 1'000'000'000).empty());
  table.sleep(*ops[1], 1000);
  table.sleep(*ops[1], 1000);
  CHECK(table.awaited(now()).size() == 1);
  table.end(std::vector<Operation*>{ops[1]});
  CHECK(table.awaited(now()).empty());
  table.end(std::vector<Operation*>{ops[0]});
}

TEST_CASE("operation: ended by one thread while others sleep, listen, look and let go") {
  hvd::core::RankStatus status;
  OperationTable table{status};
  constexpr int rounds = 2000 / slower, at_once = 6;
  std::mutex mutex;
  std::deque<std::vector<Operation*>> begun;
  std::atomic<int> told{0}, wrong{0};
  std::atomic<bool> over{false};
  std::thread ender([&] {
    for (;;) {
      std::vector<Operation*> ops;
      const bool last = over.load();
      {
        std::lock_guard lock(mutex);
        if (!begun.empty()) ops = std::move(begun.front()), begun.pop_front();
      }
      if (ops.empty() && last) return;
      for (Operation* op : ops) op->status = HVD_OK;
      if (!ops.empty()) table.end(ops);
    }
  });
  auto worker = [&](unsigned seed) {
    for (int round = 0; round < rounds; ++round) {
      std::vector<Operation*> ops(at_once);
      table.take(ops.size(), ops.data());
      std::vector<std::int64_t> handles;
      for (Operation* op : ops) handles.push_back(OperationTable::handle(*op));
      {
        std::lock_guard lock(mutex);
        begun.push_back(ops);
      }
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const std::int64_t h = handles[i];
        seed = seed * 1664525u + 1013904223u;
        switch (i + 1 < ops.size() ? seed >> 29 : 7) {  // a thread waits for the last one, so that few are in progress
          case 0:                                       // no thread waits
            break;
          case 1: {
            Operation* op = table.hold(h);
            if (op && !table.listen(
                          *op, [](void* n) { ++*static_cast<std::atomic<int>*>(n); }, &told))
              ++wrong;
            if (op) table.let_go(*op);
            ++told;  // the total is checked at the end
            break;
          }
          case 2: {  // another thread releases the operation while this one waits
            Operation* op = table.hold(h);
            table.release(h);
            while (!op->done()) table.sleep(*op, 50'000'000);
            table.let_go(*op);
            continue;
          }
          default: {
            Operation* op = table.hold(h);
            while (!op->done()) table.sleep(*op, 50'000'000);
            table.let_go(*op);
            if (!table.ended_well(h)) ++wrong;
          }
        }
        if (!table.release(h) || table.release(h) || table.ended_well(h)) ++wrong;
      }
    }
  };
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < 3; ++t) workers.emplace_back(worker, t);
  for (std::thread& t : workers) t.join();
  over = true;
  ender.join();
  CHECK(wrong == 0);
  CHECK(told % 2 == 0);
  CHECK(table.made() < 1000);  // they were recycled
}

TEST_CASE("operation: many are released in one call, each once") {
  hvd::core::RankStatus status;
  OperationTable table{status};
  std::vector<Operation*> ops(100);
  std::vector<std::int64_t> handles;
  for (int round = 0; round < 5; ++round) {
    table.take(ops.size(), ops.data());
    handles.clear();
    for (Operation* op : ops) handles.push_back(OperationTable::handle(*op));
    Operation* held = table.hold(handles[7]);
    CHECK(table.release(std::span(handles).first(50)) == 50);  // in progress
    for (Operation* op : ops) op->status = HVD_OK;
    table.end(ops);
    table.let_go(*held);
    CHECK(table.release(handles) == 50);
    CHECK(table.release(handles) == 0);
  }
  CHECK(table.made() == 100);  // they were recycled
}

TEST_CASE("operation: unknown handles among many") {
  hvd::core::RankStatus status;
  OperationTable table{status};
  std::vector<Operation*> ops(30);
  table.take(ops.size(), ops.data());
  std::vector<std::int64_t> handles;
  for (Operation* op : ops) handles.push_back(OperationTable::handle(*op));
  for (Operation* op : ops) op->status = HVD_OK;
  table.end(ops);
  std::vector<std::int64_t> mixed(handles.begin(), handles.begin() + 12);
  for (const std::int64_t unknown : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX, std::int64_t{31}, handles[0] + 30})
    mixed.push_back(unknown);
  CHECK(table.ended_well(mixed) == 12);
  CHECK(table.release(mixed) == 12);
  CHECK(table.release(handles) == 18);
}

}  // namespace hvd::testing
