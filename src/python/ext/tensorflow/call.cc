#include "call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "gpu.h"

namespace hvd::tensorflow {

WireType wire_of(int tf_type) {
  switch (tf_type) {
    case tf_uint8:
      return {HVD_U8, 1};
    case tf_int8:
      return {HVD_I8, 1};
    case tf_uint16:
      return {HVD_U16, 2};
    case tf_int16:
      return {HVD_I16, 2};
    case tf_int32:
      return {HVD_I32, 4};
    case tf_int64:
      return {HVD_I64, 8};
    case tf_half:
      return {HVD_F16, 2};
    case tf_bfloat16:
      return {HVD_BF16, 2};
    case tf_float8_e4m3fn:
      return {HVD_F8E4M3, 1};
    case tf_float8_e5m2:
      return {HVD_F8E5M2, 1};
    case tf_float:
      return {HVD_F32, 4};
    case tf_double:
      return {HVD_F64, 8};
    case tf_bool:
      return {HVD_BOOL, 1};
    case tf_uint32:
      return {HVD_U8, 4, true};
    case tf_uint64:
    case tf_complex64:
      return {HVD_U8, 8, true};
    case tf_complex128:
      return {HVD_U8, 16, true};
    default:
      return {};
  }
}

TensorFlowCall::TensorFlowCall(const OperationSpec& spec, TensorPlace place, TF_OpKernelContext* context, Done done)
    : spec_(spec), place_(place), context_(context), done_(std::move(done)) {}

TensorFlowCall::~TensorFlowCall() {
  for (CallTensor& part : parts_) {
    if (part.in) tf.DeleteTensor(part.in);
    if (part.out) tf.DeleteTensor(part.out);
  }
}

void TensorFlowCall::fail(int status, const std::string& text) {
  if (failed_ != HVD_OK) return;
  failed_ = status;
  why_ = text;
}

/// Inputs to requests, and outputs where their shapes are the inputs'.  False when it failed.
bool TensorFlowCall::prepare(int input, int count) {
  CallTensor& part = parts_[static_cast<std::size_t>(input)];
  OwnedStatus status;
  tf.GetInput(context_, input, &part.in, status);
  if (!status.ok()) return fail(HVD_INTERNAL, status.text()), false;
  for (int i = 0; i < tf.NumDims(part.in); ++i) part.shape.push_back(tf.Dim(part.in, i));
  part.wire = wire_of(tf.TensorType(part.in));
  const bool reduces = spec_.kind == HVD_ALLREDUCE || spec_.kind == HVD_REDUCESCATTER;
  if (part.wire.bytes == 0 || (reduces && part.wire.as_bytes))
    return fail(HVD_USAGE, "tensors of this dtype cannot be exchanged so"), false;
  if (spec_.kind == HVD_ALLREDUCE || spec_.kind == HVD_BROADCAST) {
    // Our own hold would keep TensorFlow from giving us the input's memory for the output.
    tf.DeleteTensor(std::exchange(part.in, nullptr));
    int which = -1;
    part.out = tf.ForwardInputOrAllocateOutput(context_, &input, 1, input, part.shape.data(),
                                               static_cast<int>(part.shape.size()), &which, status);
    if (status.ok()) tf.GetInput(context_, input, &part.in, status);
    if (!status.ok()) return fail(HVD_INTERNAL, status.text()), false;
  }
  if (place_ == TensorPlace::gpu && !find_device(part)) return false;
  if (part.shape.empty() && spec_.kind == HVD_ALLGATHER) part.shape.push_back(1);
  if (part.wire.as_bytes) part.shape.push_back(part.wire.bytes);
  part.name = spec_.name;
  if (!part.name.empty() && (count > 1 || spec_.group)) part.name += "." + std::to_string(input);
  return true;
}

bool TensorFlowCall::find_device(CallTensor& part) {
  const bool empty = tf.TensorByteSize(part.in) == 0;
  part.device = gpu_of(empty ? nullptr : tf.TensorData(part.in));
  if (part.device >= 0) return true;
  return fail(HVD_INTERNAL, "TensorFlow's tensor on a GPU lies in no GPU's memory"), false;
}

/// The second input of an alltoall: [members] int32, or [0].
bool TensorFlowCall::read_splits(CallTensor& part) {
  OwnedStatus status;
  TF_Tensor* splits = nullptr;
  tf.GetInput(context_, 1, &splits, status);
  if (!status.ok()) return fail(HVD_INTERNAL, status.text()), false;
  const auto* values = static_cast<const std::int32_t*>(tf.TensorData(splits));
  const std::size_t count = tf.TensorByteSize(splits) / sizeof *values;
  if (count) part.splits.assign(values, values + count);
  tf.DeleteTensor(splits);
  return true;
}

bool TensorFlowCall::submit() {
  std::vector<hvd_request> requests(parts_.size());
  std::vector<hvd_handle> handles(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const CallTensor& part = parts_[i];
    hvd_request& r = requests[i];
    r.struct_size = sizeof r;
    r.kind = spec_.kind;
    r.dtype = part.wire.dtype;
    r.reduce = spec_.reduce;
    r.name = part.name.empty() ? nullptr : part.name.c_str();
    r.shape = part.shape.data();
    r.ndim = static_cast<std::int32_t>(part.shape.size());
    r.root = spec_.root;
    r.set = spec_.set;
    r.device = part.device;
    r.stream = place_ == TensorPlace::gpu ? HVD_WHOLE_CONTEXT : nullptr;
    r.prescale = spec_.prescale;
    r.postscale = spec_.postscale;
    r.splits = part.splits.empty() ? nullptr : part.splits.data();
    r.num_splits = static_cast<std::int32_t>(part.splits.size());
    r.in = part.in ? tf.TensorData(part.in) : nullptr;
    r.out = part.out ? tf.TensorData(part.out) : nullptr;
  }
  const int status = runtime.submit_many(requests.data(), requests.size(), spec_.group ? HVD_GROUP : 0, handles.data());
  if (status != HVD_OK) return fail(status, runtime.last_error()), false;
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].handle = handles[i];
  return true;
}

void TensorFlowCall::start(bool blocking) {
  const int inputs = tf.NumInputs(context_);
  const bool barrier = spec_.kind == HVD_BARRIER;
  const bool alltoall = spec_.kind == HVD_ALLTOALL;
  const int tensors = alltoall ? 1 : inputs;
  parts_.resize(static_cast<std::size_t>(barrier ? 1 : tensors));
  bool well = true;
  for (int i = 0; well && i < tensors; ++i) well = prepare(i, tensors);
  if (well && alltoall) well = read_splits(parts_[0]);
  if (barrier) {
    parts_[0].shape = {0};
    parts_[0].name = spec_.name;
  }
  if (!well || parts_.empty() || !submit()) return finish();
  if (blocking) {
    for (CallTensor& part : parts_) runtime.wait(part.handle, -1);
    while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return finish();
  }
  // One more than there are, so that the last of them to end cannot finish us while this loop still runs.
  under_way_.store(static_cast<int>(parts_.size()) + 1);
  for (const CallTensor& part : parts_) {
    const auto ended = [](void* call) { static_cast<TensorFlowCall*>(call)->one_ended(); };
    if (runtime.notify(part.handle, ended, this) != HVD_OK) one_ended();  // shut down meanwhile: it has ended
  }
  one_ended();
}

void TensorFlowCall::one_ended() {
  if (under_way_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (place_ == TensorPlace::gpu)
    bridge::post_when_ready(this);
  else
    bridge::post(this);
}

/// Whether the GPU is through with all of it, or never will be.  Of an operation that failed hvd_poll says so; a
/// runtime that is gone says nothing anymore, which is an end too.
bool TensorFlowCall::ready() {
  if (place_ == TensorPlace::host) return true;
  for (CallTensor& part : parts_) {
    if (part.arrived) continue;
    int done = 0;
    if (runtime.poll(part.handle, &done) != HVD_OK) {
      fail(HVD_INTERNAL, runtime.last_error());
      done = 1;
    }
    if (!done) return false;
    part.arrived = true;
  }
  return true;
}

/// Takes the outcome of one operation that has ended, and forgets it.
void TensorFlowCall::await(CallTensor& part) {
  if (part.handle == 0) return;
  const int status = runtime.wait(part.handle, 0);
  if (status != HVD_OK) fail(status, runtime.last_error());
}

/// The result whose size only the ranks together know.
void TensorFlowCall::collect(int output, CallTensor& part) {
  std::int64_t shape[64];
  std::int32_t ndim = 0;
  void* data = nullptr;
  const int taken = runtime.take(part.handle, &data, shape, &ndim);
  if (taken != HVD_OK) return fail(taken, runtime.last_error());
  if (part.wire.as_bytes) --ndim;
  std::size_t bytes = static_cast<std::size_t>(part.wire.bytes);
  for (int i = 0; i < ndim; ++i) bytes *= static_cast<std::size_t>(shape[i]);
  OwnedStatus status;
  part.out = tf.AllocateOutput(context_, output, tf.TensorType(part.in), shape, ndim, bytes, status);
  if (!status.ok())
    fail(HVD_INTERNAL, status.text());
  else if (bytes)
    std::memcpy(tf.TensorData(part.out), data, bytes);
  runtime.free(data);
}

/// The second output of an alltoall: [members] int32, the rows that came from each.
void TensorFlowCall::collect_splits(CallTensor& part) {
  std::int32_t rank = 0, members = 0;
  if (const int got = runtime.set_get(spec_.set, &rank, &members, nullptr); got != HVD_OK)
    return fail(got, runtime.last_error());
  std::vector<std::int64_t> rows(static_cast<std::size_t>(members));
  if (const int got = runtime.take_splits(part.handle, rows.data()); got != HVD_OK)
    return fail(got, runtime.last_error());
  OwnedStatus status;
  const std::int64_t shape = members;
  TF_Tensor* out = tf.AllocateOutput(context_, 1, tf_int32, &shape, 1, rows.size() * sizeof(std::int32_t), status);
  if (!status.ok()) return fail(HVD_INTERNAL, status.text());
  auto* to = static_cast<std::int32_t*>(tf.TensorData(out));
  std::transform(rows.begin(), rows.end(), to, [](std::int64_t n) { return static_cast<std::int32_t>(n); });
  tf.DeleteTensor(out);
}

void TensorFlowCall::finish() {
  for (CallTensor& part : parts_) await(part);
  const bool alltoall = spec_.kind == HVD_ALLTOALL;
  const bool sized_by_ranks = alltoall || spec_.kind == HVD_ALLGATHER || spec_.kind == HVD_REDUCESCATTER;
  if (alltoall && failed_ == HVD_OK) collect_splits(parts_[0]);
  for (std::size_t i = 0; sized_by_ranks && failed_ == HVD_OK && i < parts_.size(); ++i)
    collect(static_cast<int>(i), parts_[i]);
  for (CallTensor& part : parts_)
    if (part.handle != 0) runtime.release(part.handle);
  if (failed_ != HVD_OK) {
    OwnedStatus status;
    status.set(canonical_code(failed_), why_);
    tf.OpKernelContext_Failure(context_, status);
  }
  const Done done = std::move(done_);
  delete this;  // before done: what it starts may want the memory of our inputs
  done();
}

}  // namespace hvd::tensorflow
