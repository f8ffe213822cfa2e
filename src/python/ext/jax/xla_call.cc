#include "xla_call.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "stream_device.h"

namespace hvd::jax {

using bridge::runtime;

XlaLayout layout{};

namespace {

/// The maximum time for which an XLA thread is blocked.
constexpr std::chrono::microseconds moment{200};

#define HVD_XLA_SAME(dtype, word, ...) bridge::same(xla_##word, dtype),
const std::array xla_types{HVD_DTYPE_NUMBERS(HVD_XLA_SAME) bridge::TypeRow{}};

/// The buffers of a call that are no tokens.
std::vector<const XlaBuffer*> tensors(const XlaBuffers& buffers) {
  std::vector<const XlaBuffer*> found;
  for (std::int64_t i = 0; i < buffers.size; ++i) {
    const auto* buffer = static_cast<const XlaBuffer*>(buffers.buffers[i]);
    if (buffer->dtype != xla_token) found.push_back(buffer);
  }
  return found;
}

std::string text_of(const std::int64_t* dims, std::int64_t count) {
  std::string text = "[";
  for (std::int64_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace

bool parse(XlaText text, bridge::CallOperation* operation) {
  const std::string line(text.data, text.length);
  const char* at = line.c_str();
  char* end = nullptr;
  bool well = true;
  const auto integer = [&] {
    const long value = std::strtol(at, &end, 10);
    well = well && end != at && std::in_range<std::int32_t>(value);
    at = end;
    return static_cast<std::int32_t>(value);
  };
  const auto real = [&] {
    const double value = std::strtod(at, &end);
    well = well && end != at;
    at = end;
    return value;
  };
  operation->kind = static_cast<hvd_kind>(integer());
  operation->reduce = integer();
  operation->root = integer();
  operation->set = integer();
  operation->group = integer() != 0;
  operation->prescale = real();
  operation->postscale = real();
  if (!well || *at != ' ') return false;
  operation->name = at + 1;
  return true;
}

// ---- XLA's functions

template <class Arguments>
XlaError* XlaInterface::call(std::int32_t offset, Arguments* arguments) const {
  arguments->struct_size = sizeof *arguments;
  arguments->extension_start = nullptr;
  XlaError* (*function)(Arguments*) = nullptr;
  std::memcpy(&function, api_ + offset, sizeof function);
  return function(arguments);
}

XlaError* XlaInterface::error(int hvd_status, const std::string& text) const {
  XlaErrorCreate arguments{0, nullptr, text.c_str(), bridge::canonical_code(hvd_status)};
  return call(layout.error_create, &arguments);
}

bool XlaInterface::has_futures() const { return layout.future_create != 0; }

XlaFuture* XlaInterface::future() const {
  XlaFutureCreate arguments{};
  return call(layout.future_create, &arguments) ? nullptr : arguments.future;
}

void XlaInterface::available(XlaFuture* future) const {
  XlaFutureSetAvailable arguments{0, nullptr, future};
  call(layout.future_set_available, &arguments);
}

void XlaInterface::failed(XlaFuture* future, XlaError* error) const {
  XlaFutureSetError arguments{0, nullptr, future, error};
  call(layout.future_set_error, &arguments);
}

void* XlaInterface::stream(void* context) const {
  XlaStreamGet arguments{0, nullptr, context, nullptr};
  return layout.stream_get == 0 || call(layout.stream_get, &arguments) ? nullptr : arguments.stream;
}

// ---- a call

XlaCall::XlaCall(bridge::CallOperation operation, const XlaCallFrame* frame)
    : Call(std::move(operation)), xla_(frame->api) {}

/// Converts buffers to tensors. Returns false on failure.
bool XlaCall::prepare(const XlaCallFrame* frame) {
  const auto ins = tensors(frame->arguments);
  outs_ = tensors(frame->results);
  if (ins.size() != outs_.size()) return fail(HVD_INTERNAL, "a call with other results than arguments"), false;
  if (operation_.kind == HVD_BARRIER) return describe_barrier(), true;
  tensors_.resize(ins.size());
  for (std::size_t i = 0; i < ins.size(); ++i) {
    if (!describe(i, bridge::find_type(xla_types, ins[i]->dtype), ins[i]->dims, ins[i]->rank)) return false;
    tensors_[i].in = ins[i]->data;
    tensors_[i].out = operation_.sized() ? outs_[i]->data : nullptr;
    tensors_[i].device = device_;
    tensors_[i].stream = stream_;
  }
  return true;
}

/// Finds the GPU, and the program's stream on it. Returns false on failure.
bool XlaCall::find_gpu(const XlaCallFrame* frame) {
  stream_ = xla_.stream(frame->context);
  if (!stream_) return fail(HVD_INTERNAL, operation_.name + ": XLA does not tell the stream of its program"), false;
  device_ = gpu::ordinal_of(stream_);
  if (device_ < 0)
    return fail(HVD_INTERNAL, operation_.name + ": CUDA's driver does not tell the GPU of the program"), false;
  return true;
}

/// Drives the runtime on this thread for a moment, and returns true if all operations ended in it. Two changes of
/// thread would cost more than a small operation.
bool XlaCall::ended_soon() const {
  const auto until = std::chrono::steady_clock::now() + moment;
  for (const bridge::CallTensor& tensor : tensors_) {
    const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
    int done = 0;
    if (left.count() > 0) runtime.wait(tensor.handle, left.count());
    if (runtime.poll(tensor.handle, &done) != HVD_OK || !done) return false;
  }
  return true;
}

/// Copies the result, whose size depends on all ranks, into the program's buffer for it.
void XlaCall::collect(std::size_t output) {
  const bridge::CallTensor& tensor = tensors_[output];
  const XlaBuffer& out = *outs_[output];
  bridge::TakenResult result;
  if (!take(tensor, result)) return;
  const auto dims = static_cast<std::size_t>(result.ndim);
  if (result.ndim != out.rank || std::memcmp(result.shape, out.dims, dims * sizeof *out.dims) != 0)
    return fail(HVD_MISMATCH, tensor.name + ": the ranks' arrays together have the shape " +
                                  text_of(result.shape, result.ndim) + ", but this program was compiled for " +
                                  text_of(out.dims, out.rank) +
                                  ": inside jit all ranks' arrays must have the shape of this rank's");
  if (result.bytes == 0) return;
  if (!stream_)
    std::memcpy(out.data, result.data, result.bytes);
  else if (const std::string why = gpu::copy(out.data, result.data, result.bytes, stream_); !why.empty())
    fail(HVD_INTERNAL, tensor.name + ": " + why);
}

/// Takes the outcome of ended operations: the failure, or null.
XlaError* XlaCall::outcome() {
  wait_for_all();
  for (std::size_t i = 0; !operation_.sized() && !failed() && i < tensors_.size(); ++i) collect(i);
  release_all();
  return failed() ? xla_.error(status_, why_) : nullptr;
}

XlaError* XlaCall::start(bridge::CallOperation operation, const XlaCallFrame* frame, Memory memory,
                         XlaFuture** future) {
  auto call = std::make_unique<XlaCall>(std::move(operation), frame);
  if (memory == Memory::cuda && !call->find_gpu(frame)) return call->outcome();
  if (!call->prepare(frame) || (!call->tensors_.empty() && !call->submit())) return call->outcome();
  if (call->tensors_.empty()) return nullptr;
  // On a GPU a future would only add a change of thread.  XLA waits for it before it queues more work.
  if (call->stream_ || call->ended_soon() || !call->xla_.has_futures() || !(call->future_ = call->xla_.future()))
    return call->outcome();
  *future = call->future_;
  call.release()->finish_later(false);  // NOLINT: finish() deletes it
  return nullptr;
}

void XlaCall::finish() {
  XlaError* const error = outcome();
  const XlaInterface xla = xla_;
  XlaFuture* const future = future_;
  delete this;  // before XLA learns of it: it continues at once, on this thread
  if (error)
    xla.failed(future, error);
  else
    xla.available(future);
}

}  // namespace hvd::jax
