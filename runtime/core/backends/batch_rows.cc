#include "core/backends/batch_rows.h"

#include "core/operation/name_entry.h"

namespace hvd::core {

std::uint32_t BatchRows::begin(std::span<Operation* const> ops, trace::Phase phase) {
  const std::uint32_t row = ++last_;
  if (!tracer_.enabled()) return row;
  tracer_.batch_begin(row);
  for (const Operation* op : ops) tracer_.batch_tensor(op->entry->track);
  tracer_.phase_begin(row, phase);
  return row;
}

void BatchRows::next(std::uint32_t row, trace::Phase from, trace::Phase to) {
  if (!tracer_.enabled()) return;
  tracer_.phase_end(row, from);
  tracer_.phase_begin(row, to);
}

void BatchRows::end(std::uint32_t row, trace::Phase phase) {
  if (!tracer_.enabled()) return;
  tracer_.phase_end(row, phase);
  tracer_.batch_end(row);
}

}  // namespace hvd::core
