#include "call.h"

#include <utility>

namespace hvd::bridge {

TypeRow same(int type, hvd_dtype dtype) {
#define HVD_BYTES(enumerator, number, word, name, bytes) bytes,
  static constexpr std::size_t bytes[] = {HVD_DTYPES(HVD_BYTES)};
#undef HVD_BYTES
  return {type, {dtype, bytes[dtype]}};
}

TakenResult::~TakenResult() {
  if (data) runtime.free(data);  // memory of a GPU is reused when the stream has reached this point
}

void Call::fail(int status, std::string text) {
  if (failed()) return;
  status_ = status;
  why_ = std::move(text);
}

bool Call::describe(std::size_t index, WireType type, const std::int64_t* dims, std::int64_t ndim) {
  if (type.bytes == 0) {
    fail(HVD_USAGE,
         (operation_.name.empty() ? "" : operation_.name + ": ") + "tensors of this dtype cannot be exchanged");
    return false;
  }
  CallTensor& tensor = tensors_[index];
  tensor.type = type;
  tensor.shape.assign(dims, dims + ndim);
  if (tensor.shape.empty() && operation_.kind == HVD_ALLGATHER) tensor.shape.push_back(1);
  tensor.name = operation_.name;
  if (!tensor.name.empty() && (tensors_.size() > 1 || operation_.group)) tensor.name += "." + std::to_string(index);
  return true;
}

void Call::describe_barrier() {
  tensors_.resize(1);
  tensors_[0].shape = {0};
  tensors_[0].name = operation_.name;
}

bool Call::submit() {
  std::vector<hvd_request> requests(tensors_.size());
  std::vector<hvd_handle> handles(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const CallTensor& tensor = tensors_[i];
    hvd_request& r = requests[i];
    r.struct_size = sizeof r;
    r.kind = operation_.kind;
    r.dtype = tensor.type.dtype;
    r.reduce = operation_.reduce;
    r.name = tensor.name.empty() ? nullptr : tensor.name.c_str();
    r.shape = tensor.shape.data();
    r.ndim = static_cast<std::int32_t>(tensor.shape.size());
    r.root = operation_.root;
    r.set = operation_.set;
    r.device = tensor.device;
    r.stream = tensor.stream;
    r.prescale = operation_.prescale;
    const bool zeros = operation_.prescale == 0 && operation_.postscale == 0;
    r.postscale = zeros ? 1 : operation_.postscale;  // hvd_request takes two zeros for factors that were not given
    r.splits = tensor.splits.empty() ? nullptr : tensor.splits.data();
    r.num_splits = static_cast<std::int32_t>(tensor.splits.size());
    r.in = tensor.in;
    r.out = tensor.out;
  }
  const std::uint32_t flags = operation_.group ? HVD_GROUP : 0;
  if (const int status = runtime.submit_many(requests.data(), requests.size(), flags, handles.data());
      status != HVD_OK) {
    fail(status, runtime.last_error());
    return false;
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].handle = handles[i];
  return true;
}

void Call::finish_later(bool on_gpu) {
  on_gpu_ = on_gpu;
  runtime.part_begin(HVD_PART_FUTURE);
  // Counts this loop as one more tensor. So the last tensor to end cannot finish (and delete) this call while the loop
  // runs.
  under_way_.store(static_cast<int>(tensors_.size()) + 1);
  for (const CallTensor& tensor : tensors_) {
    const auto ended = [](void* call) { static_cast<Call*>(call)->one_ended(); };
    if (runtime.notify(tensor.handle, ended, this) != HVD_OK) one_ended();  // shut down: the operation has ended
  }
  one_ended();
}

void Call::one_ended() {
  if (under_way_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  runtime.part_end(HVD_PART_FUTURE);
  if (on_gpu_)
    post_when_ready(this);
  else
    post(this);
}

/// hvd_poll reports a failed operation. A runtime that has been shut down reports nothing, which is an end too.
bool Call::ready() {
  for (CallTensor& tensor : tensors_) {
    if (tensor.arrived) continue;
    int done = 0;
    if (runtime.poll(tensor.handle, &done) != HVD_OK) {
      fail(HVD_INTERNAL, runtime.last_error());
      done = 1;
    }
    if (!done) return false;
    tensor.arrived = true;
  }
  return true;
}

void Call::wait_for_all() {
  for (const CallTensor& tensor : tensors_)
    if (tensor.handle != 0)
      if (const int status = runtime.wait(tensor.handle, -1); status != HVD_OK) fail(status, runtime.last_error());
}

bool Call::take(const CallTensor& tensor, TakenResult& result) {
  if (const int status = runtime.take(tensor.handle, &result.data, result.shape, &result.ndim); status != HVD_OK) {
    fail(status, runtime.last_error());
    return false;
  }
  result.bytes = tensor.type.bytes;
  for (int i = 0; i < result.ndim; ++i) result.bytes *= static_cast<std::size_t>(result.shape[i]);
  return true;
}

void Call::release_all() {
  for (CallTensor& tensor : tensors_)
    if (tensor.handle != 0) runtime.release(std::exchange(tensor.handle, 0));
}

}  // namespace hvd::bridge
