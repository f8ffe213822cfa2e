/// @file library.h — NCCL's functions, found at run time.
///
/// Declared here as NCCL 2.18 has them; later ones kept all of it.  The copy that
/// the framework has loaded already is taken, so that there is one in the process.
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
inline constexpr int float8_version = 22400;      ///< from here on it has 8-bit floats
inline constexpr int float8_generation = 9;       ///< and adds them up on GPUs of this compute capability or a later
inline constexpr int shared_gpu_version = 23000;  ///< from here on several ranks may use one GPU
inline constexpr RedOp sum = 0, product = 1, max = 2, min = 3;
inline constexpr int type_u8 = 1;    ///< ncclUint8
inline constexpr int no_color = -1;  ///< NCCL_SPLIT_NOCOLOR: takes part, and is in none

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t as 2.18 knows it; its size says so to later ones.
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
  /// nullptr: it has none.
  int (*split)(Comm comm, int color, int key, Comm* made, NcclConfig* config) = nullptr;
  const char* (*error_string)(int code) = nullptr;
  const char* (*last_error)(Comm comm) = nullptr;
  std::string path;  ///< what was loaded, or "already loaded"
  int version = 0;   ///< 23007

  /// The process's NCCL, looked for at the first use: HVD_NCCL_LIBRARY, what is loaded already, the system's.  nullptr:
  /// why_not() says why.
  static const Library* get();
  static std::string why_not();

  /// "unhandled system error (…)"
  std::string text(int code, Comm comm) const;
  /// Throws Error: peer_lost when another rank is the cause, else unavailable.  in_progress is fine.
  void check(int code, const char* what, Comm comm) const;
};

/// "2.30.7" for 23007.
std::string version_text(int version);

/// The number of a dtype in NCCL's sums, or -1: it moves, but does not add.
int type_of(DType dtype);

}  // namespace hvd::nccl
