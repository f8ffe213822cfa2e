#include "core/batch/node_sums.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/backends/reduction.h"
#include "core/operation/name_entry.h"

namespace hvd::core {
namespace {

std::size_t to_lines(std::size_t bytes) { return (bytes + 63) / 64; }

/// Bytes of one node's part of the item in a message.
std::size_t travelling_bytes(const ops::Item& item) {
  return item.wide.element_bytes ? item.bytes / item.element_bytes * item.wide.element_bytes : item.bytes;
}

}  // namespace

/// Between two nodes, a tensor that travels with its announcement crosses the network twice: first the part, then the
/// result.  Slices cross in both directions at once.  But a slice waits until the receiver has announced memory, and
/// then for the data.  So slices are faster if the second crossing takes longer than these waits.  Among more nodes,
/// parts are not added on the way.  So only small tensors then travel with their announcements.
std::size_t largest_travelling(std::size_t nodes, const ops::NetworkModel& network) {
  constexpr std::size_t least = 32 << 10;
  const std::size_t most = largest_travelling_sum(nodes, network);
  return nodes == 2 ? most : std::min(most, least);
}

std::size_t largest_travelling_sum(std::size_t nodes, const ops::NetworkModel& network) {
  constexpr double least = 32 << 10, most = negotiate::NodeParts::most_bytes;
  if (nodes > 2) return (64 << 10) / nodes;
  const double waits = 2 * network.latency_ns + network.message_ns;
  return static_cast<std::size_t>(std::clamp(waits / (network.byte_ns - network.add_byte_ns), least, most));
}

unsigned char* NodeSums::room(std::vector<CacheLine>& lines, std::size_t bytes) {
  if (lines.size() < to_lines(bytes)) lines.resize(to_lines(bytes));
  return lines.data()->bytes;
}

/// The operation @p id, if the leaders add up its nodes' parts.  Such an operation is an allreduce, announced by ready
/// bit, with an eager slot.  Otherwise nullptr.
const Operation* NodeSums::summed(std::uint32_t id) const {
  const Operation* op = id < pending_.size() ? pending_[id] : nullptr;
  return op && op->by_bit && op->entry->slot != negotiate::no_slot && op->entry->reduce ? op : nullptr;
}

std::size_t NodeSums::bytes(std::uint32_t id) const {
  const Operation* op = summed(id);
  return op ? travelling_bytes(item_of(*op)) : 0;
}

void NodeSums::part(std::uint32_t id, unsigned char* to) {
  const Operation* op = summed(id);
  const ops::Item item = item_of(*op, check_);
  source_.assign(1, op->in);  // the leader does not copy its input to its slot
  for (int r = 1; r < node_.ranks; ++r) source_.push_back(slots_.at(r, op->entry->slot, op->parity));
  const ops::ReduceFn reduce = item.wide.element_bytes ? item.wide.part : item.reduce;
  reduce(source_.data(), node_.ranks, to, item.bytes / item.element_bytes, ops::Scale{item.scale.before});
  item.look(0, item.bytes, to, source_.data(), node_.ranks, item.part_dtype());
}

std::string_view NodeSums::whole(std::uint32_t id, std::span<const std::string_view> parts) {
  const Operation* op = summed(id);
  if (!op) return {};  // after fail_all(): every operation ends with an error
  const ops::Item item = item_of(*op);
  const std::size_t each = travelling_bytes(item), apart = to_lines(each) * 64;
  unsigned char* const in = room(in_, apart * parts.size());
  const ops::NodeReduce how(item);
  const bool reads_only = levels_.size() < 2;  // otherwise add_up() writes to its sources
  by_node_.resize(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].size() != each)
      throw std::runtime_error("negotiation: the nodes' parts have another length than the tensor");
    if (reads_only && reinterpret_cast<std::uintptr_t>(parts[i].data()) % how.part_bytes == 0) {
      by_node_[i] = reinterpret_cast<unsigned char*>(const_cast<char*>(parts[i].data()));
      continue;
    }
    by_node_[i] = in + apart * i;
    std::memcpy(by_node_[i], parts[i].data(), each);
  }
  unsigned char* const to = slots_.at(0, op->entry->slot, op->parity);
  node_order_.add_up(how, levels_, by_node_, -1, nullptr, to, item.bytes / item.element_bytes, true);
  return {reinterpret_cast<const char*>(to), item.bytes};
}

void NodeSums::put(std::uint32_t id, std::string_view result) {
  const Operation* op = summed(id);
  if (!op) return;  // after fail_all(): every operation ends with an error
  if (result.size() != op->entry->bytes)
    throw std::runtime_error("negotiation: a result has another length than the tensor");
  std::memcpy(slots_.at(0, op->entry->slot, op->parity), result.data(), result.size());
}

}  // namespace hvd::core
