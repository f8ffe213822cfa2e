/// @file kernel_call.h — one execution of an asynchronous kernel of hvd.tensorflow.
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
  /// Executed eagerly, where the caller waits anyway: its thread then runs the runtime itself, which avoids two changes
  /// of thread.
  bool blocking = false;
};

/// The device of a kernel's tensors.
enum class TensorPlace { host, gpu };

/// The text of the last failure that a kernel gave TensorFlow; "" if none. Any thread.
std::string last_failure();

/// The object owns itself: finish() deletes it. finish() runs once, when all its operations have ended, and a GPU with
/// their tensors has finished them.
class KernelCall final : public bridge::Call {
 public:
  KernelCall(const bridge::CallOperation& operation, TensorPlace place, TF_OpKernelContext* context, Done done);
  ~KernelCall() override;
  /// Submits. finish() is called here (for blocking calls, or after a failed submission) or later on the completion
  /// thread.
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
  std::vector<TF_Tensor*> ins_, outs_;  ///< nullptr if there is none (yet)
};

}  // namespace hvd::tensorflow
