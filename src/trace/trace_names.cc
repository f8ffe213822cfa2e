#include "trace/trace_names.h"

#include <array>

namespace hvd::trace {

namespace {

constexpr std::array<std::string_view, trace_ops> ops = {"ALLREDUCE",     "ALLGATHER", "BROADCAST", "ALLTOALL",
                                                         "REDUCESCATTER", "BARRIER",   "JOIN",      "ADASUM"};

/// As backends spell the operation behind their prefix.
constexpr std::array<std::string_view, trace_ops> backend_ops = {
    "ALLREDUCE", "ALLGATHER", "BCAST", "ALLTOALL", "REDUCESCATTER", "BARRIER", "JOIN", "ADASUM_ALLREDUCE"};

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

// Indexed by hvd_dtype.
constexpr std::array<std::string_view, 13> dtypes = {"uint8",    "int8",          "uint16",     "int16",   "int32",
                                                     "int64",    "float16",       "float32",    "float64", "bool",
                                                     "bfloat16", "float8_e4m3fn", "float8_e5m2"};

}  // namespace

std::string_view op_name(TraceOp op) { return ops[static_cast<std::size_t>(op)]; }

std::string phase_name(Phase phase, TraceOp op) {
  std::string name(phases[static_cast<std::size_t>(phase)]);
  if (name.back() == '_') name += backend_ops[static_cast<std::size_t>(op)];
  return name;
}

std::string dtype_name(int dtype) {
  if (dtype >= 0 && static_cast<std::size_t>(dtype) < dtypes.size())
    return std::string(dtypes[static_cast<std::size_t>(dtype)]);
  return "dtype" + std::to_string(dtype);
}

}  // namespace hvd::trace
