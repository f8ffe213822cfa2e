/// @file library.h — NCCL's functions, looked up at run time.
///
/// The declarations follow NCCL 2.18, and later versions are compatible.  The runtime uses the copy of NCCL that the
/// framework has loaded, so that the process has only one copy.
#pragma once
#include <cstddef>
#include <string>

#include "common/types.h"
#include "gpu/cuda/driver.h"

namespace hvd::nccl {

using Comm = void*;
using RedOp = int;

inline constexpr int success = 0, remote_error = 6, in_progress = 7;
inline constexpr int oldest_version = 21800;
inline constexpr int float8_version = 22400;      ///< first version with 8-bit floats
inline constexpr int float8_generation = 9;       ///< first compute capability on which NCCL sums 8-bit floats
inline constexpr int shared_gpu_version = 23000;  ///< first version that allows several ranks on one GPU
inline constexpr int window_version = 22700;      ///< first version with symmetric windows
inline constexpr RedOp sum = 0, product = 1, max = 2, min = 3;
inline constexpr int type_u8 = 1;    ///< ncclUint8
inline constexpr int no_color = -1;  ///< NCCL_SPLIT_NOCOLOR: the rank takes part in the split, but is in no part

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t of NCCL 2.18.  Later versions recognize it by its size.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeefu;
  unsigned version = oldest_version;
  int blocking = 0;
  int cga_cluster_size = undefined, min_ctas = undefined, max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined;
  static constexpr int undefined = -2147483647 - 1;
};

#define HVD_NCCL_FUNCTIONS(X)                                                                                     \
  X(get_version, "ncclGetVersion", (int* version))                                                                \
  X(get_unique_id, "ncclGetUniqueId", (UniqueId * id))                                                            \
  X(init, "ncclCommInitRankConfig", (Comm * comm, int ranks, UniqueId id, int rank, NcclConfig* config))          \
  X(abort, "ncclCommAbort", (Comm comm))                                                                          \
  X(async_error, "ncclCommGetAsyncError", (Comm comm, int* error))                                                \
  X(make_premul, "ncclRedOpCreatePreMulSum", (RedOp * op, void* scalar, int type, int residence, Comm comm))      \
  X(destroy_op, "ncclRedOpDestroy", (RedOp op, Comm comm))                                                        \
  X(all_reduce, "ncclAllReduce",                                                                                  \
    (const void* in, void* out, std::size_t count, int type, RedOp op, Comm comm, cuda::Stream stream))           \
  X(broadcast, "ncclBroadcast",                                                                                   \
    (const void* in, void* out, std::size_t count, int type, int root, Comm comm, cuda::Stream stream))           \
  X(reduce, "ncclReduce",                                                                                         \
    (const void* in, void* out, std::size_t count, int type, RedOp op, int root, Comm comm, cuda::Stream stream)) \
  X(all_gather, "ncclAllGather",                                                                                  \
    (const void* in, void* out, std::size_t count, int type, Comm comm, cuda::Stream stream))                     \
  X(reduce_scatter, "ncclReduceScatter",                                                                          \
    (const void* in, void* out, std::size_t count, int type, RedOp op, Comm comm, cuda::Stream stream))           \
  X(send, "ncclSend", (const void* in, std::size_t count, int type, int peer, Comm comm, cuda::Stream stream))    \
  X(receive, "ncclRecv", (void* out, std::size_t count, int type, int peer, Comm comm, cuda::Stream stream))      \
  X(group_start, "ncclGroupStart", (void))                                                                        \
  X(group_end, "ncclGroupEnd", (void))

struct Library {
#define HVD_NCCL_MEMBER(member, symbol, arguments) int(*member) arguments = nullptr;
  HVD_NCCL_FUNCTIONS(HVD_NCCL_MEMBER)
#undef HVD_NCCL_MEMBER
  /// ncclCommSplit; nullptr: this NCCL lacks the function.
  int (*split)(Comm comm, int color, int key, Comm* made, NcclConfig* config) = nullptr;
  /// ncclMemAlloc, ncclCommRegister and ncclCommWindowRegister; nullptr: this NCCL lacks the function.
  int (*mem_alloc)(void** data, std::size_t bytes) = nullptr;
  int (*register_local)(Comm comm, void* data, std::size_t bytes, void** handle) = nullptr;
  int (*register_window)(Comm comm, void* data, std::size_t bytes, void** window, int flags) = nullptr;
  const char* (*error_string)(int code) = nullptr;
  const char* (*last_error)(Comm comm) = nullptr;
  std::string path;  ///< file name of the library
  int version = 0;   ///< 23007 is 2.30.7

  /// The process's NCCL.  The first call tries HVD_NCCL_LIBRARY, then a copy that is loaded already, then the system's
  /// copy.  Returns nullptr if there is none: why_not() returns the reason.
  static const Library* get();
  static std::string why_not();

  /// The text of an error, such as "unhandled system error (…)".
  std::string text(int code, Comm comm) const;
  /// Throws Error unless @p code is success or in_progress.  The error is peer_lost if another rank is the cause, else
  /// unavailable.
  void check(int code, const char* what, Comm comm) const;
};

/// Returns "2.30.7" for 23007.
std::string version_text(int version);

/// NCCL's number of a dtype; -1: NCCL cannot reduce the dtype, but can move its bytes.
int type_of(DType dtype);

}  // namespace hvd::nccl
