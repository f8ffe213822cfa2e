#include "core/backends/reduction.h"

#include "core/backends/widened.h"
#include "core/operation/name_entry.h"

namespace hvd::core {

ops::Item item_of(const Operation& op, ops::FiniteCheck* check) {
  const Signature& s = op.entry->signature;
  ops::Item item;
  item.in = static_cast<const unsigned char*>(op.in);
  item.out = static_cast<unsigned char*>(op.out);
  item.bytes = op.entry->bytes;
  item.dtype = s.type();
  item.element_bytes = element_bytes(s.type());
  item.reduce = ops::reducer(s.type(), s.reduction() == Reduce::adasum ? Reduce::sum : s.reduction());
  item.scale = op.entry->scale;
  if (WideCopy::needed(s)) item.wide = ops::wide_reducer(s.type(), s.reduction());
  const bool sum = s.reduction() == Reduce::sum || s.reduction() == Reduce::average;
  if (check && sum && (is_floating(s.type()) || is_complex(s.type()))) {
    item.check = check;
    item.name = &op.entry->name;
  }
  return item;
}

ops::DividedTensor divided(Operation& op, const World& world, ops::FiniteCheck* check) {
  const Signature& s = op.entry->signature;
  const std::int64_t rows = s.dims[0];
  op.result_shape.assign(s.dims, s.dims + s.ndim);
  op.result_shape[0] = rows / world.size + (world.rank < rows % world.size ? 1 : 0);
  ops::DividedTensor t{item_of(op, check), rows};
  const std::size_t bytes = t.end(world.rank, world.size) - t.begin(world.rank, world.size);
  t.item.out = static_cast<unsigned char*>(op.memory_for(bytes));
  return t;
}

Reduction::Reduction(ops::Rings& rings, ops::Distance& distance, const ops::Nodes& nodes,
                     transport::Transport& transport)
    : rings_(rings),
      distance_(distance),
      nodes_(nodes),
      between_nodes_(nodes, transport),
      allreduce_(rings),
      registered_(rings.node),
      direct_(rings) {}

/// Ranks publish addresses only of tensors that they announce by ready bit and that have no eager slot.
bool Reduction::lies_registered(const Operation& op) {
  return nodes_.count() == 1 && op.by_bit && op.entry->slot == negotiate::no_slot &&
         registered_.registered(op.entry->id, op.parity);
}

void Reduction::begin(std::span<Operation* const> ops, std::span<const Backend* const> chosen) {
  stream_.clear();
  direct_.clear();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Operation& op = *ops[i];
    if (chosen[i]->in_place)
      direct_.add(item_of(op, check_), op.entry->id, op.parity);
    else
      stream_.add(item_of(op, check_));
  }
  rings_.streaming = distance_.streaming(rings_.node, stream_.bytes);
  direct_.begin();
  const int carriers = nodes_.carriers();
  const std::size_t slice = nodes_.count() > 1 ? slice_ : 0;
  const ops::Cut cut = nodes_.count() > 1 && carriers == 1 ? allreduce_.cut_at_tensors(stream_, nodes_.alone(), slice)
                                                           : allreduce_.cut(stream_, carriers, slice);
  if (nodes_.count() > 1) between_nodes_.begin(stream_, cut);
  allreduce_.begin(stream_, cut, nodes_.count() > 1 ? &between_nodes_ : nullptr);
}

void Reduction::tune(const TunedSettings& settings) {
  slice_ = static_cast<std::size_t>(settings.slice_bytes);
  between_nodes_.set_latency(static_cast<double>(settings.latency_ns));
}

bool Reduction::step() {
  const bool moved = allreduce_.step();
  return direct_.step() || moved;
}

bool Reduction::result_again(const void* out, std::size_t begin, std::size_t end, unsigned char* to) const {
  for (const ops::Item& item : stream_.items)
    if (item.out == out && end <= item.bytes) return allreduce_.result_again(item.at + begin, item.at + end, to);
  return false;
}

void Reduction::drop() { between_nodes_.drop(); }

}  // namespace hvd::core
