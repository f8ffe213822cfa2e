#include "kernel_call.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "gpu_kernels.h"

namespace hvd::tensorflow {

namespace {

#define HVD_TF_SAME(dtype, word, ...) bridge::same(tf_##word, dtype),
const std::array tf_types{HVD_DTYPE_NUMBERS(HVD_TF_SAME) bridge::TypeRow{}};

std::mutex failure_mutex;
std::string failure_text;

}  // namespace

std::string last_failure() {
  const std::lock_guard lock(failure_mutex);
  return failure_text;
}

KernelCall::KernelCall(const bridge::CallOperation& operation, TensorPlace place, TF_OpKernelContext* context,
                       Done done)
    : Call(operation), place_(place), context_(context), done_(std::move(done)) {}

KernelCall::~KernelCall() {
  for (const auto& tensors : {ins_, outs_})
    for (TF_Tensor* tensor : tensors)
      if (tensor) tf.DeleteTensor(tensor);
}

/// Makes a request of an input, with an output if its shape is the input's. Returns false on failure.
bool KernelCall::prepare(int input) {
  const auto index = static_cast<std::size_t>(input);
  TF_Tensor*& in = ins_[index];
  OwnedStatus status;
  tf.GetInput(context_, input, &in, status);
  if (!status.ok()) return fail(HVD_INTERNAL, status.text()), false;
  std::vector<std::int64_t> dims;
  for (int i = 0; i < tf.NumDims(in); ++i) dims.push_back(tf.Dim(in, i));
  if (!describe(index, bridge::find_type(tf_types, tf.TensorType(in)), dims.data(), tf.NumDims(in))) return false;
  if (operation_.sized()) {
    // A reference to the input would prevent TensorFlow from giving the input's memory to the output.
    tf.DeleteTensor(std::exchange(in, nullptr));
    int which = -1;
    outs_[index] = tf.ForwardInputOrAllocateOutput(context_, &input, 1, input, dims.data(),
                                                   static_cast<int>(dims.size()), &which, status);
    if (status.ok()) tf.GetInput(context_, input, &in, status);
    if (!status.ok()) return fail(HVD_INTERNAL, status.text()), false;
    tensors_[index].out = tf.TensorData(outs_[index]);
  }
  tensors_[index].in = tf.TensorData(in);
  return place_ == TensorPlace::host || find_device(index);
}

bool KernelCall::find_device(std::size_t input) {
  const bool empty = tf.TensorByteSize(ins_[input]) == 0;
  tensors_[input].device = gpu_of(empty ? nullptr : tensors_[input].in);
  tensors_[input].stream = HVD_WHOLE_CONTEXT;
  if (tensors_[input].device >= 0) return true;
  return fail(HVD_INTERNAL, "TensorFlow's tensor on a GPU lies in no GPU's memory"), false;
}

/// The second input of an alltoall: [members] int32, or [0].
bool KernelCall::read_splits() {
  OwnedStatus status;
  TF_Tensor* splits = nullptr;
  tf.GetInput(context_, 1, &splits, status);
  if (!status.ok()) return fail(HVD_INTERNAL, status.text()), false;
  const auto* values = static_cast<const std::int32_t*>(tf.TensorData(splits));
  const std::size_t count = tf.TensorByteSize(splits) / sizeof *values;
  if (count) tensors_[0].splits.assign(values, values + count);
  tf.DeleteTensor(splits);
  return true;
}

void KernelCall::start(bool blocking) {
  const bool barrier = operation_.kind == HVD_BARRIER;
  const bool alltoall = operation_.kind == HVD_ALLTOALL;
  const int inputs = alltoall ? 1 : tf.NumInputs(context_);
  tensors_.resize(static_cast<std::size_t>(inputs));
  ins_.resize(tensors_.size());
  outs_.resize(tensors_.size());
  bool well = true;
  for (int i = 0; well && i < inputs; ++i) well = prepare(i);
  if (well && alltoall) well = read_splits();
  if (barrier) describe_barrier();
  if (!well || tensors_.empty() || !submit()) return finish();
  if (!blocking) return finish_later(place_ == TensorPlace::gpu);
  wait_for_all();
  while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  finish();
}

/// The result whose size depends on all ranks.
void KernelCall::collect(std::size_t output) {
  bridge::TakenResult result;
  if (!take(tensors_[output], result)) return;
  OwnedStatus status;
  outs_[output] = tf.AllocateOutput(context_, static_cast<int>(output), tf.TensorType(ins_[output]), result.shape,
                                    result.ndim, result.bytes, status);
  if (!status.ok())
    fail(HVD_INTERNAL, status.text());
  else if (result.bytes)
    std::memcpy(tf.TensorData(outs_[output]), result.data, result.bytes);
}

/// The second output of an alltoall: [members] int32, the number of rows from each.
void KernelCall::collect_splits() {
  std::int32_t rank = 0, members = 0;
  if (const int got = runtime.set_get(operation_.set, &rank, &members, nullptr); got != HVD_OK)
    return fail(got, runtime.last_error());
  std::vector<std::int64_t> rows(static_cast<std::size_t>(members));
  if (const int got = runtime.take_splits(tensors_[0].handle, rows.data()); got != HVD_OK)
    return fail(got, runtime.last_error());
  OwnedStatus status;
  const std::int64_t shape = members;
  TF_Tensor* out = tf.AllocateOutput(context_, 1, tf_i32, &shape, 1, rows.size() * sizeof(std::int32_t), status);
  if (!status.ok()) return fail(HVD_INTERNAL, status.text());
  auto* to = static_cast<std::int32_t*>(tf.TensorData(out));
  std::transform(rows.begin(), rows.end(), to, [](std::int64_t n) { return static_cast<std::int32_t>(n); });
  tf.DeleteTensor(out);
}

void KernelCall::finish() {
  wait_for_all();
  if (operation_.kind == HVD_ALLTOALL && !failed()) collect_splits();
  for (std::size_t i = 0; !operation_.sized() && !failed() && i < tensors_.size(); ++i) collect(i);
  release_all();
  if (failed()) {
    {
      const std::lock_guard lock(failure_mutex);
      failure_text = why_;
    }
    OwnedStatus status;
    status.set(canonical_code(status_), why_);
    tf.OpKernelContext_Failure(context_, status);
  }
  const Done done = std::move(done_);
  delete this;  // before done: the next kernel may need the memory of the inputs
  done();
}

}  // namespace hvd::tensorflow
