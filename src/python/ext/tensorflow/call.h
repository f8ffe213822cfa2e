/// @file call.h — one execution of one of our asynchronous ops: tensors in, an operation of libhvd for each, tensors
/// out.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "../bridge/completion.h"
#include "../bridge/runtime.h"
#include "tf_api.h"

namespace hvd::tensorflow {

using bridge::canonical_code;
using bridge::runtime;

/// A kernel's attributes: what is the same in all its executions.
struct OperationSpec {
  hvd_kind kind = HVD_ALLREDUCE;
  std::string name;  ///< with the operation's kind in front; empty: made from the order of the calls
  std::int32_t reduce = HVD_SUM, root = 0, set = HVD_GLOBAL_SET;
  double prescale = 1, postscale = 1;
  bool group = false;  ///< the tensors become ready, and run, together
  /// Executed eagerly, where the caller waits anyway: its thread then runs the runtime itself, which spares two
  /// hand-overs.
  bool blocking = false;
};

/// Where a kernel's tensors lie.
enum class TensorPlace { host, gpu };

/// libhvd's number for a TensorFlow dtype.  What only moves and is no dtype of libhvd travels as bytes.
struct WireType {
  int dtype = HVD_U8;
  int bytes = 0;  ///< of one element in TensorFlow; 0: not exchangeable
  bool as_bytes = false;
};
WireType wire_of(int tf_type);

/// Owned by itself: deleted by finish(), which runs once, when all its operations have ended, and the GPU, where it is
/// one's tensors, is through with them.
class TensorFlowCall final : public bridge::Completion {
 public:
  TensorFlowCall(const OperationSpec& spec, TensorPlace place, TF_OpKernelContext* context, Done done);
  ~TensorFlowCall() override;
  /// Submits; finish() is called here (blocking, or what failed at once) or later on the completion thread.
  void start(bool blocking);
  void finish() override;
  bool ready() override;

 private:
  struct CallTensor {
    TF_Tensor* in = nullptr;
    TF_Tensor* out = nullptr;  ///< where the result's size is known beforehand
    WireType wire;
    std::vector<std::int64_t> shape;   ///< as libhvd is told
    std::vector<std::int64_t> splits;  ///< alltoall: rows for each member; empty: equal parts
    std::string name;
    std::int32_t device = HVD_HOST_DEVICE;
    hvd_handle handle = 0;
    bool arrived = false;  ///< has ended, on the device too
  };
  bool prepare(int input, int count);
  bool find_device(CallTensor& part);
  bool read_splits(CallTensor& part);
  bool submit();
  void await(CallTensor& part);
  void collect(int output, CallTensor& part);
  void collect_splits(CallTensor& part);
  void fail(int status, const std::string& text);
  void one_ended();

  const OperationSpec& spec_;
  const TensorPlace place_;
  TF_OpKernelContext* context_;
  Done done_;
  std::vector<CallTensor> parts_;
  std::atomic<int> under_way_{0};
  int failed_ = HVD_OK;
  std::string why_;
};

}  // namespace hvd::tensorflow
