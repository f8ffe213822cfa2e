/// @file kernel_call.h — one execution of one of our asynchronous kernels in TensorFlow.
#pragma once
#include <string>
#include <vector>

#include "../bridge/call.h"
#include "tf_api.h"

namespace hvd::tensorflow {

using bridge::canonical_code;
using bridge::runtime;

/// A kernel's attributes.
struct KernelAttributes : bridge::CallOperation {
  /// Executed eagerly, where the caller waits anyway: its thread then runs the runtime itself, which spares two
  /// hand-overs.
  bool blocking = false;
};

/// Where a kernel's tensors lie.
enum class TensorPlace { host, gpu };

/// The text of the last failure that a kernel gave TensorFlow; "" when none.  Any thread.
std::string last_failure();

/// Owned by itself: deleted by finish(), which runs once, when all its operations have ended, and the GPU, where it is
/// one's tensors, is through with them.
class KernelCall final : public bridge::Call {
 public:
  KernelCall(const bridge::CallOperation& operation, TensorPlace place, TF_OpKernelContext* context, Done done);
  ~KernelCall() override;
  /// Submits; finish() is called here (blocking, or what failed at once) or later on the completion thread.
  void start(bool blocking);
  void finish() override;
  bool ready() override { return place_ == TensorPlace::host || Call::ready(); }

 private:
  bool prepare(int input);
  bool find_device(std::size_t input);
  bool read_splits();
  void collect(std::size_t output);
  void collect_splits();

  const TensorPlace place_;
  TF_OpKernelContext* context_;
  Done done_;
  std::vector<TF_Tensor*> ins_, outs_;  ///< nullptr where there is none (yet)
};

}  // namespace hvd::tensorflow
