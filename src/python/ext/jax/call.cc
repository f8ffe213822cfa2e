#include "call.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "gpu.h"

namespace hvd::jax {

using bridge::runtime;

XlaLayout layout{};

namespace {

/// An XLA thread is held up for so long at most.
constexpr std::chrono::microseconds moment{200};

struct WireDType {
  int dtype = HVD_U8;
  int bytes = 0;  ///< of one element; 0: not exchangeable
  bool as_bytes = false;
};

/// libhvd's number for an XLA dtype.  What only moves and is no dtype of libhvd travels as bytes.
WireDType wire_of(int dtype) {
  switch (dtype) {
    case xla_pred:
      return {HVD_BOOL, 1};
    case xla_s8:
      return {HVD_I8, 1};
    case xla_s16:
      return {HVD_I16, 2};
    case xla_s32:
      return {HVD_I32, 4};
    case xla_s64:
      return {HVD_I64, 8};
    case xla_u8:
      return {HVD_U8, 1};
    case xla_u16:
      return {HVD_U16, 2};
    case xla_u32:
      return {HVD_U8, 4, true};
    case xla_u64:
    case xla_c64:
      return {HVD_U8, 8, true};
    case xla_c128:
      return {HVD_U8, 16, true};
    case xla_f16:
      return {HVD_F16, 2};
    case xla_bf16:
      return {HVD_BF16, 2};
    case xla_f8e4m3fn:
      return {HVD_F8E4M3, 1};
    case xla_f8e5m2:
      return {HVD_F8E5M2, 1};
    case xla_f32:
      return {HVD_F32, 4};
    case xla_f64:
      return {HVD_F64, 8};
    default:
      return {};
  }
}

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

bool parse(XlaText text, ProgramOperation* spec) {
  const std::string line(text.data, text.length);
  const char* at = line.c_str();
  char* end = nullptr;
  bool well = true;
  const auto integer = [&] {
    const long value = std::strtol(at, &end, 10);
    well = well && end != at;
    at = end;
    return static_cast<std::int32_t>(value);
  };
  const auto real = [&] {
    const double value = std::strtod(at, &end);
    well = well && end != at;
    at = end;
    return value;
  };
  spec->kind = integer();
  spec->reduce = integer();
  spec->root = integer();
  spec->set = integer();
  spec->group = integer() != 0;
  spec->prescale = real();
  spec->postscale = real();
  if (!well || *at != ' ') return false;
  spec->name = at + 1;
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

XlaCall::XlaCall(ProgramOperation spec, const XlaCallFrame* frame) : spec_(std::move(spec)), xla_(frame->api) {}

void XlaCall::fail(int status, const std::string& text) {
  if (failed_ != HVD_OK) return;
  failed_ = status;
  why_ = text;
}

/// Buffers to parts.  False when it failed.
bool XlaCall::prepare(const XlaCallFrame* frame) {
  const auto ins = tensors(frame->arguments), outs = tensors(frame->results);
  if (ins.size() != outs.size()) return fail(HVD_INTERNAL, "a call with other results than arguments"), false;
  if (spec_.kind == HVD_BARRIER) {
    parts_.resize(1);
    parts_[0].shape = {0};
    parts_[0].name = spec_.name;
    return true;
  }
  parts_.resize(ins.size());
  for (std::size_t i = 0; i < ins.size(); ++i) {
    CallBuffer& part = parts_[i];
    const WireDType wire = wire_of(ins[i]->dtype);
    if (wire.bytes == 0) return fail(HVD_USAGE, spec_.name + ": arrays of this dtype cannot be exchanged"), false;
    part.in = ins[i];
    part.out = outs[i];
    part.dtype = wire.dtype;
    part.as_bytes = wire.as_bytes;
    part.shape.assign(part.in->dims, part.in->dims + part.in->rank);
    if (part.shape.empty() && spec_.kind == HVD_ALLGATHER) part.shape.push_back(1);
    if (wire.as_bytes) part.shape.push_back(wire.bytes);
    part.name = spec_.name;
    if (ins.size() > 1 || spec_.group) part.name += "." + std::to_string(i);
  }
  return true;
}

/// Which GPU, and the program's stream there.  False when it failed.
bool XlaCall::find_gpu(const XlaCallFrame* frame) {
  stream_ = xla_.stream(frame->context);
  if (!stream_) return fail(HVD_INTERNAL, spec_.name + ": XLA does not tell the stream of its program"), false;
  device_ = gpu::ordinal_of(stream_);
  if (device_ < 0)
    return fail(HVD_INTERNAL, spec_.name + ": CUDA's driver does not tell the GPU of the program"), false;
  return true;
}

bool XlaCall::submit() {
  const bool sized = spec_.kind == HVD_ALLREDUCE || spec_.kind == HVD_BROADCAST;
  std::vector<hvd_request> requests(parts_.size());
  std::vector<hvd_handle> handles(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const CallBuffer& part = parts_[i];
    hvd_request& r = requests[i];
    r.struct_size = sizeof r;
    r.kind = spec_.kind;
    r.dtype = part.dtype;
    r.reduce = spec_.reduce;
    r.name = part.name.c_str();
    r.shape = part.shape.data();
    r.ndim = static_cast<std::int32_t>(part.shape.size());
    r.root = spec_.root;
    r.set = spec_.set;
    r.device = part.in ? device_ : HVD_HOST_DEVICE;
    r.stream = stream_;
    r.prescale = spec_.prescale;
    r.postscale = spec_.postscale;
    r.in = part.in ? part.in->data : nullptr;
    r.out = part.out && sized ? part.out->data : nullptr;
  }
  const int status = runtime.submit_many(requests.data(), requests.size(), spec_.group ? HVD_GROUP : 0, handles.data());
  if (status != HVD_OK) return fail(status, runtime.last_error()), false;
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].handle = handles[i];
  return true;
}

/// Whether all end within a moment, in which this thread runs the runtime itself: that spares two hand-overs to other
/// threads, which cost more than a small operation.
bool XlaCall::ended_soon() const {
  const auto until = std::chrono::steady_clock::now() + moment;
  for (const CallBuffer& part : parts_) {
    const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
    int done = 0;
    if (left.count() > 0) runtime.wait(part.handle, left.count());
    if (runtime.poll(part.handle, &done) != HVD_OK || !done) return false;
  }
  return true;
}

void XlaCall::await_later() {
  // One more than there are, so that the last of them to end cannot finish us while this loop still runs.
  under_way_.store(static_cast<int>(parts_.size()) + 1);
  for (const CallBuffer& part : parts_) {
    const auto ended = [](void* call) { static_cast<XlaCall*>(call)->one_ended(); };
    if (runtime.notify(part.handle, ended, this) != HVD_OK) one_ended();  // shut down meanwhile: it has ended
  }
  one_ended();
}

void XlaCall::one_ended() {
  if (under_way_.fetch_sub(1, std::memory_order_acq_rel) == 1) bridge::post(this);
}

void XlaCall::gpu_copy(const CallBuffer& part, const void* from, std::size_t bytes) {
  if (const std::string why = gpu::copy(part.out->data, from, bytes, stream_); !why.empty())
    fail(HVD_INTERNAL, part.name + ": " + why);
}

/// The result whose size only the ranks together know, into the buffer that the program has for it.
void XlaCall::collect(CallBuffer& part) {
  std::int64_t shape[64];
  std::int32_t ndim = 0;
  void* data = nullptr;
  const int taken = runtime.take(part.handle, &data, shape, &ndim);
  if (taken != HVD_OK) return fail(taken, runtime.last_error());
  std::size_t bytes = static_cast<std::size_t>(part.as_bytes ? 1 : wire_of(part.in->dtype).bytes);
  for (int i = 0; i < ndim; ++i) bytes *= static_cast<std::size_t>(shape[i]);
  if (part.as_bytes) --ndim;
  const XlaBuffer& out = *part.out;
  if (ndim != out.rank || std::memcmp(shape, out.dims, static_cast<std::size_t>(ndim) * sizeof *shape) != 0)
    fail(HVD_MISMATCH, part.name + ": the ranks' arrays together have the shape " + text_of(shape, ndim) +
                           ", but this program was compiled for " + text_of(out.dims, out.rank) +
                           ": inside jit all ranks' arrays must have the shape of this rank's");
  else if (bytes && stream_)
    gpu_copy(part, data, bytes);
  else if (bytes)
    std::memcpy(out.data, data, bytes);
  runtime.free(data);  // of a GPU it is used anew when the stream has come here
}

/// Takes the outcome of operations that have ended: the failure, or null.
XlaError* XlaCall::outcome() {
  const bool sized = spec_.kind == HVD_ALLREDUCE || spec_.kind == HVD_BROADCAST || spec_.kind == HVD_BARRIER;
  for (CallBuffer& part : parts_)
    if (part.handle != 0)
      if (const int status = runtime.wait(part.handle, -1); status != HVD_OK) fail(status, runtime.last_error());
  for (CallBuffer& part : parts_)
    if (!sized && failed_ == HVD_OK) collect(part);
  for (CallBuffer& part : parts_)
    if (part.handle != 0) runtime.release(part.handle);
  return failed_ == HVD_OK ? nullptr : xla_.error(failed_, why_);
}

XlaError* XlaCall::start(ProgramOperation spec, const XlaCallFrame* frame, Memory memory, XlaFuture** future) {
  auto call = std::make_unique<XlaCall>(std::move(spec), frame);
  if (memory == Memory::cuda && !call->find_gpu(frame)) return call->outcome();
  if (!call->prepare(frame) || (!call->parts_.empty() && !call->submit())) return call->outcome();
  if (call->parts_.empty()) return nullptr;
  // XLA waits for a future before it puts more on a GPU's stream: it would be one more hand-over between threads.
  if (call->stream_ || call->ended_soon() || !call->xla_.has_futures() || !(call->future_ = call->xla_.future()))
    return call->outcome();
  *future = call->future_;
  call.release()->await_later();  // NOLINT: finish() deletes it
  return nullptr;
}

void XlaCall::finish() {
  XlaError* const error = outcome();
  const XlaInterface xla = xla_;
  XlaFuture* const future = future_;
  delete this;  // before XLA hears of it: it goes on at once, on this thread
  if (error)
    xla.failed(future, error);
  else
    xla.available(future);
}

}  // namespace hvd::jax
