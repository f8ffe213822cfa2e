/// @file call.h — one execution of an operation in a framework's compiled program.  Submits an operation of libhvd for
/// each tensor.  TensorFlow's kernels and XLA's handler derive from it.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "completion.h"
#include "libhvd_functions.h"

namespace hvd::bridge {

/// The fields that are equal in all executions.
struct CallOperation {
  hvd_kind kind = HVD_ALLREDUCE;
  std::int32_t reduce = HVD_SUM, root = 0, set = HVD_GLOBAL_SET;
  double prescale = 1, postscale = 1;
  bool group = false;  ///< the tensors become ready, and run, together
  std::string name;    ///< with the operation's kind before it; empty: made from the order of the calls

  /// The result's size is known before the operation, and so its memory.
  bool sized() const { return kind == HVD_ALLREDUCE || kind == HVD_BROADCAST || kind == HVD_BARRIER; }
};

/// The form of a framework's dtype in libhvd.
struct WireType {
  hvd_dtype dtype = HVD_U8;
  std::size_t bytes = 0;  ///< of one element; 0: not supported
};

/// A row of a framework's table of dtypes.
struct TypeRow {
  int type = 0;  ///< the framework's number
  WireType wire;
};
/// A row for a dtype of libhvd's.
TypeRow same(int type, hvd_dtype dtype);
/// The wire type of a framework's number; not supported if there is no row.
template <std::size_t rows>
WireType find_type(const std::array<TypeRow, rows>& table, int type) {
  for (const TypeRow& row : table)
    if (row.type == type) return row.wire;
  return {};
}

/// One tensor of a call.
struct CallTensor {
  WireType type;
  std::vector<std::int64_t> shape;   ///< in the numbers of libhvd
  std::vector<std::int64_t> splits;  ///< alltoall: rows for each member; empty: equal parts
  std::string name;
  const void* in = nullptr;
  void* out = nullptr;  ///< memory of the result, if its size is known before the operation
  std::int32_t device = HVD_HOST_DEVICE;
  void* stream = nullptr;
  hvd_handle handle = 0;
  bool arrived = false;  ///< has ended, also on the device
};

/// A result whose size depends on all ranks. The destructor returns the memory to libhvd.
class TakenResult {
 public:
  TakenResult() = default;
  TakenResult(const TakenResult&) = delete;
  TakenResult& operator=(const TakenResult&) = delete;
  ~TakenResult();

  void* data = nullptr;
  std::int64_t shape[64] = {};  ///< of the framework's elements
  std::int32_t ndim = 0;
  std::size_t bytes = 0;
};

class Call : public Completion {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// Returns true if the GPU has finished all tensors, or has failed.
  bool ready() override;

 protected:
  explicit Call(CallOperation operation) : operation_(std::move(operation)) {}
  ~Call() override = default;

  /// Records a failure; the first one stays.
  void fail(int status, std::string text);
  bool failed() const { return status_ != HVD_OK; }

  /// Fills in type, shape and name of the tensor at @p index. @p dims: [ndim]. Returns false on failure.
  bool describe(std::size_t index, WireType type, const std::int64_t* dims, std::int64_t ndim);
  /// Adds the one request of a barrier, which has no tensor.
  void describe_barrier();
  /// Submits all tensors. Returns false on failure.
  bool submit();
  /// Arranges that a completion thread calls finish() once all operations have ended. With @p on_gpu, the GPU must also
  /// have finished them. finish() may delete this object before this function returns.
  void finish_later(bool on_gpu);
  /// Waits until all operations have ended, and records the first failure.
  void wait_for_all();
  /// Returns false on failure.
  bool take(const CallTensor& tensor, TakenResult& result);
  /// Releases all operations.
  void release_all();

  const CallOperation operation_;
  std::vector<CallTensor> tensors_;
  int status_ = HVD_OK;
  std::string why_;

 private:
  void one_ended();

  std::atomic<int> under_way_{0};
  bool on_gpu_ = false;
};

}  // namespace hvd::bridge
