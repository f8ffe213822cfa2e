/// @file group.h — the fake NCCL's communicators. A group of calls becomes messages between ranks.
///
/// Every pair of ranks has a mailbox in shared memory. A group's messages are carried in order. Each message names its
/// operation, so ranks whose calls differ get an error.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/nccl/communicator/library.h"

namespace fake {

using hvd::nccl::RedOp;

inline constexpr int invalid_usage = 5;
inline constexpr RedOp first_made_op = 16;  ///< ncclRedOpCreatePreMulSum returns numbers from here on
inline constexpr int most_ranks = 16;
inline constexpr std::size_t box_bytes = 16 << 10;

struct Mailbox {
  std::atomic<std::uint32_t> full;
  std::uint32_t bytes, kind;
  std::uint64_t total;
  unsigned char data[box_bytes];
};

/// One split of a communicator: the request of each rank.
struct Round {
  std::atomic<int> arrived;
  int color[most_ranks], key[most_ranks];
};
inline constexpr int most_rounds = 64;

struct Segment {
  std::atomic<int> joined;
  Round rounds[most_rounds];
  Mailbox boxes[most_ranks * most_ranks];  ///< [from * most_ranks + to]
};

struct Premultiplied {
  int type;
  double factor;
};

struct Communicator {
  Segment* segment = nullptr;
  std::string name;
  int rank = 0, size = 0;
  std::atomic<int> error{hvd::nccl::success}, looks{0}, jobs{0};
  std::atomic<bool> aborted{false};
  bool blocking = false;     ///< its groups are on the stream when ncclGroupEnd returns
  bool made_blocks = false;  ///< the same for the communicator that a split in progress makes
  bool joined = false;
  int rounds = 0;                 ///< number of splits made from this communicator
  Communicator** made = nullptr;  ///< where the result of a split goes while it is in progress
  int groups = 0;
  int blocked_groups = 0;
  std::atomic<int> graphs{0};  ///< groups in CUDA graphs that exist
  std::atomic<int> inside{0};  ///< the number of calls that hold a thread
  int device = 0;
  std::vector<Premultiplied> ops;
  /// Stream and work of a group that has ended. NCCL puts the work there from a thread of its own, before the
  /// communicator is ready again, and no earlier.
  std::vector<std::pair<void*, std::function<void()>*>> queued;
};

enum class Kind : std::uint32_t { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, receive };

struct Call {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  int type;
  RedOp op;
  int peer;
  Communicator* comm;
  void* stream;
};

/// Joins the ranks that use @p name; nullptr: no memory.
Communicator* open_communicator(const std::string& name, int rank, int size);
/// Starts this rank's part of a split. finish_split() reports its end, and makes the communicator.
void begin_split(Communicator& comm, int color, int key, Communicator** made);
bool finish_split(Communicator& comm);

/// Waits for all ranks of the communicator, or for its abort. Returns whether all have given the same @p fact.
bool meet(Communicator& comm, int fact);

/// Carries out @p calls of one communicator, on its stream's thread. Returns when the messages have arrived, or after
/// an abort.
void carry_out(Communicator& comm, const std::vector<Call>& calls);

}  // namespace fake
