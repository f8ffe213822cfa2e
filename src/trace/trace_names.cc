#include "trace/trace_names.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "hvd/hvd.h"

namespace hvd::trace {

namespace {

/// The kinds of hvd.h without HVD_, then the further operations of tracks.
#define HVD_UPPER(enumerator, ...) std::string_view(#enumerator).substr(4),
constexpr std::array<std::string_view, trace_ops> ops = {HVD_KINDS(HVD_UPPER) "ADASUM"};
#undef HVD_UPPER

/// The operation's name after a backend's prefix, such as MPI_.
std::string_view backend_op(TraceOp op) {
  if (op == TraceOp::broadcast) return "BCAST";
  return op == TraceOp::adasum ? "ADASUM_ALLREDUCE" : op_name(op);
}

constexpr std::array<std::string_view, trace_phases> phases = {"QUEUE",
                                                               "WAIT_FOR_DATA",
                                                               "WAIT_FOR_OTHER_TENSOR_DATA",
                                                               "INIT_FUSION_BUFFER",
                                                               "MEMCPY_IN_FUSION_BUFFER",
                                                               "MEMCPY_OUT_FUSION_BUFFER",
                                                               "ALLOCATE_OUTPUT",
                                                               "MPI_",
                                                               "NCCL_",
                                                               "SHM_",
                                                               "INIT_NCCL"};

#define HVD_NAME(enumerator, number, word, name, ...) name,
constexpr std::string_view dtypes[] = {HVD_DTYPES(HVD_NAME)};
#undef HVD_NAME
#define HVD_BYTES(enumerator, number, word, name, bytes) bytes,
constexpr std::uint8_t sizes[] = {HVD_DTYPES(HVD_BYTES)};
#undef HVD_BYTES

}  // namespace

std::string_view op_name(TraceOp op) { return ops[static_cast<std::size_t>(op)]; }

bool is_operation(std::string_view name) { return std::find(ops.begin(), ops.end(), name) != ops.end(); }

std::string phase_name(Phase phase, TraceOp op) {
  std::string name(phases[static_cast<std::size_t>(phase)]);
  if (name.back() == '_') name += backend_op(op);
  return name;
}

std::string_view part_name(TracedPart part) {
  constexpr std::array<std::string_view, traced_parts> names = {"input", "garbage collection", "checkpoint"};
  return names[static_cast<std::size_t>(part)];
}

std::string dtype_name(int dtype) {
  if (dtype >= 0 && static_cast<std::size_t>(dtype) < std::size(dtypes))
    return std::string(dtypes[static_cast<std::size_t>(dtype)]);
  return formatted("dtype{}", dtype);
}

std::uint64_t dtype_bytes(int dtype) {
  return dtype >= 0 && static_cast<std::size_t>(dtype) < std::size(sizes) ? sizes[static_cast<std::size_t>(dtype)] : 0;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

}  // namespace hvd::trace
