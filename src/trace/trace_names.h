/// @file trace_names.h — the names of events in a timeline.  The names are Horovod's, because tools search for them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace_record.h"

namespace hvd::trace {

/// "ALLREDUCE"
std::string_view op_name(TraceOp op);
/// True if op_name() returns @p name for an operation.
bool is_operation(std::string_view name);
/// "MEMCPY_IN_FUSION_BUFFER".  The names of mpi, nccl and shm contain the operation: "MPI_BCAST", "SHM_ALLREDUCE".
std::string phase_name(Phase phase, TraceOp op);
/// "input"
std::string_view part_name(TracedPart part);
/// numpy's name of an hvd_dtype, such as "float32"; "dtype<n>" for an unknown number.
std::string dtype_name(int dtype);
/// Bytes of an element; 0 for an unknown dtype.
std::uint64_t dtype_bytes(int dtype);
/// "[2, 3]"
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace hvd::trace
