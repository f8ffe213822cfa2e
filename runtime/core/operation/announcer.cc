#include "core/operation/announcer.h"

#include <algorithm>
#include <cstring>

#include "memory/arena.h"
#include "memory/queue.h"
#include "negotiate/command.h"

namespace hvd::core {

Announcer::Announcer(const memory::Node& node, bool fills)
    : node_(node), fills_(fills), slots_(node), flips_(node.geometry.words) {}

void Announcer::begin(NameEntry& e, Operation& op) {
  op.by_bit = true;
  op.parity = e.round ^= 1;
  if (e.slot == negotiate::no_slot)
    tell_address(e, op);
  else if (e.fills && fills_)
    std::memcpy(slots_.at(node_.me, e.slot, op.parity), op.in, e.bytes);
  const std::uint32_t w = e.id / 64;
  if (flips_[w] == 0) words_.push_back(w);
  flips_[w] |= 1ull << (e.id % 64);
}

/// Publishes where a tensor without an eager slot lies in registered memory: offset + 1 of input and output.  0: not in
/// registered memory.
void Announcer::tell_address(const NameEntry& e, const Operation& op) {
  if (e.signature.operation() != Kind::allreduce || e.signature.device >= 0 || e.id >= memory::most_addresses) return;
  const memory::Arena& arena = memory::Arena::process();
  const auto in = arena.offset(op.in, e.bytes), out = arena.offset(op.out, e.bytes);
  memory::TensorAddress& address = node_.tensor_address(node_.me, e.id, op.parity);
  // Other ranks read this cache line, so an equal value is not stored again.
  auto tell = [](std::atomic<std::uint64_t>& word, std::uint64_t value) {
    if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_release);
  };
  tell(address.in, in && out ? *in + 1 : 0);
  tell(address.out, in && out ? *out + 1 : 0);
}

bool Announcer::flip() {
  bool last = false;
  for (const std::uint32_t w : words_) {
    const std::uint64_t mine = node_.flip(node_.me, w, flips_[w]);
    std::uint64_t complete = flips_[w];  // bits that are equal on all ranks of the node
    for (int r = 0; r < node_.ranks && complete; ++r)
      if (r != node_.me) complete &= ~(node_.word(r, w).load(std::memory_order_seq_cst) ^ mine);
    flips_[w] = 0;
    last |= complete != 0;
  }
  words_.clear();
  return last;
}

void Announcer::take_back(std::uint32_t id) { node_.flip(node_.me, id / 64, 1ull << (id % 64)); }

void Announcer::record(std::uint64_t executed, const Signature& signature, std::string_view name) {
  negotiate::append_record(outbox_, executed, signature, name);
  flush();
}

bool Announcer::flush() {
  const std::size_t n = memory::post_records(node_, outbox_);
  outbox_.erase(0, n);
  waits_.store(!outbox_.empty(), std::memory_order_release);
  return n > 0;
}

}  // namespace hvd::core
