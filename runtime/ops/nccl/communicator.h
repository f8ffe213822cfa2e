/// @file communicator.h — one NCCL communicator of one process set, never blocking.
///
/// NCCL is told not to block: a call that takes longer goes on inside NCCL, and
/// ready() asks how far it is.  So a lost peer never holds up the engine's thread,
/// and abort() works at every moment.  Used under the engine's drive lock, with
/// the GPU's context current.
#pragma once
#include <map>
#include <utility>

#include "cuda/gpu.h"
#include "ops/nccl/library.h"

namespace hvd::nccl {

class Communicator {
 public:
  /// Begins to join; the id is the same on all ranks and was used for nothing else.
  Communicator(const Library& library, const UniqueId& id, int rank, int size);
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// What was asked for last is done on the host's side: the communicator can be used.  Throws Error when NCCL failed,
  /// also for what goes wrong on the device later.
  bool ready();
  /// A sum of what is multiplied by @p factor first.  Made once for each type and factor.  Only while ready().
  RedOp premultiplied(int type, double factor);
  /// Ends everything under way here, kernels on the device too.  Local.
  void abort() noexcept;

  void begin() { library_.check(library_.group_start(), "ncclGroupStart", comm_); }
  void end() { library_.check(library_.group_end(), "ncclGroupEnd", comm_); }
  void check(int code, const char* what) const { library_.check(code, what, comm_); }
  Comm comm() const { return comm_; }
  const Library& library() const { return library_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  const Library& library_;
  const int rank_, size_;
  Comm comm_ = nullptr;
  std::map<std::pair<int, double>, RedOp> factors_;
};

}  // namespace hvd::nccl
