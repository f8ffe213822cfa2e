// Ready bits and records of two ranks in one node's memory.
#include "core/operation/announcer.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "memory/queue.h"

namespace hvd::testing {

using core::Announcer;
using core::NameEntry;
using core::Operation;

namespace {

struct TwoRanks {
  TwoRanks() {
    memory::Geometry g;
    g.ranks = 2;
    g.words = 2;
    g.chunk_bytes = 4096;
    g.eager_bytes = 4096;
    g.record_bytes = 256;
    g.command_bytes = 1024;
    for (int r = 0; r < 2; ++r) {
      nodes.push_back(std::make_unique<memory::Node>(g, r));
      if (r == 0) {
        const std::size_t bytes = nodes[0]->total_bytes();
        memory.reset(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), std::free);
        std::memset(memory.get(), 0, bytes);
      }
      nodes[static_cast<std::size_t>(r)]->attach(memory);
    }
  }
  std::shared_ptr<void> memory;
  std::vector<std::unique_ptr<memory::Node>> nodes;
};

void describe(NameEntry& e, std::uint32_t id, std::int64_t elements) {
  Signature s;
  s.kind = static_cast<std::uint8_t>(Kind::allreduce);
  s.dtype = HVD_F32;
  s.ndim = 1;
  s.dims[0] = elements;
  e.describe(s, 0, 2);
  e.id = id;
}

}  // namespace

TEST_CASE("announcer: the leader must look when the last rank's bit is set; bits are parities") {
  TwoRanks two;
  Announcer first(*two.nodes[0], true), second(*two.nodes[1], true);
  NameEntry e[2], other;
  float x = 5;
  Operation op[2], another;
  for (int r = 0; r < 2; ++r) describe(e[r], 70, 1), op[r].in = op[r].out = &x;
  describe(other, 3, 1);
  another.in = another.out = &x;
  for (int round = 1; round <= 3; ++round) {
    first.begin(e[0], op[0]);
    first.begin(other, another);
    CHECK_FALSE(first.flip());
    CHECK(op[0].by_bit);
    CHECK(op[0].parity == round % 2);
    CHECK((two.nodes[0]->word(0, 1).load() >> 6) == static_cast<std::uint64_t>(round % 2));
    CHECK_FALSE(first.flip());  // nothing more to set
    second.begin(e[1], op[1]);
    CHECK(second.flip());
    first.take_back(3);
    CHECK(two.nodes[1]->word(0, 0).load() == 0);
  }
}

TEST_CASE("announcer: a small tensor is in its slot before its bit is set") {
  TwoRanks two;
  Announcer announcer(*two.nodes[1], true);
  NameEntry e;
  describe(e, 0, 2);
  e.slot = 64;
  const float x[] = {3, 4};
  Operation op;
  op.in = x;
  announcer.begin(e, op);
  ops::EagerSlots slots(*two.nodes[0]);
  CHECK(std::memcmp(slots.at(1, 64, op.parity), x, sizeof x) == 0);
  CHECK(two.nodes[0]->word(1, 0).load() == 0);
  announcer.flip();
  CHECK(two.nodes[0]->word(1, 0).load() == 1);
}

TEST_CASE("announcer: records that do not fit the queue wait, and keep their order") {
  TwoRanks two;
  Announcer announcer(*two.nodes[1], true);
  NameEntry e;
  describe(e, 0, 2);
  constexpr int count = 20;
  for (int i = 0; i < count; ++i) announcer.record(static_cast<std::uint64_t>(i), e.signature, "t" + std::to_string(i));
  CHECK(announcer.waits());
  CHECK_FALSE(announcer.flush());  // still full
  std::string bytes;
  int seen = 0;
  while (memory::take_records(*two.nodes[0], 1, bytes)) {
    std::string_view left = bytes;
    for (negotiate::Record r; negotiate::next_record(left, r); ++seen) {
      CHECK(r.executed == static_cast<std::uint64_t>(seen));
      CHECK(r.name == "t" + std::to_string(seen));
      CHECK(r.signature == e.signature);
    }
    bytes.erase(0, bytes.size() - left.size());
    announcer.flush();
  }
  CHECK(seen == count);
  CHECK_FALSE(announcer.waits());
}

}  // namespace hvd::testing
