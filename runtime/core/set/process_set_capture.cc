/// @file process_set_capture.cc — how a caller's thread records operations in the CUDA graph that it captures.
///
/// The operations do not run: the driver puts NCCL's work into the graph.  The ranks compare each call
/// (captured_call.h) by an allgather in host memory.  So the engine reports missing and lost ranks as for every
/// operation.
#include <algorithm>
#include <utility>

#include "core/backends/device_operations.h"
#include "core/set/captured_call.h"
#include "core/set/process_set.h"

namespace hvd::core {
namespace {

/// Runs one operation, and returns its result.  Throws the operation's Error.
std::string result_of(const ProcessSet::RunOne& run, OperationTable& operations, const CheckedRequest& request,
                      std::vector<std::int64_t>* received = nullptr) {
  Operation& op = run(request);
  const int status = op.status;
  std::string result = op.error;
  if (status == HVD_OK && received) {
    *received = op.received;
    std::size_t bytes = 0;
    for (const std::int64_t n : op.received) bytes += static_cast<std::size_t>(n);
    if (bytes > 0) result.assign(static_cast<const char*>(op.result), bytes);
  }
  operations.release(op);
  if (status != HVD_OK) throw Error(static_cast<Code>(status), "", result);
  return result;
}

/// The stream of all requests, which is being captured.  Throws Error{usage}.
gpu::StreamHandle captured_stream(std::span<const CheckedRequest> requests) {
  const CheckedRequest& first = requests.front();
  const auto same = [&](const CheckedRequest& p) { return p.gpu == first.gpu && p.stream == first.stream; };
  const char* const where = name_of(first.signature.operation());
  if (!first.gpu || !first.gpu->capturing(first.stream))
    throw Error(Code::usage, where, "HVD_CAPTURE, but no stream of a GPU is being captured");
  if (!std::all_of(requests.begin(), requests.end(), same))
    throw Error(Code::usage, where, "tensors of one captured call come from different streams", "one call for each");
  return first.stream;
}

}  // namespace

/// Collective, in the set's first captured call.  An empty tensor on the GPUs makes the ranks agree on them.  Such a
/// tensor needs no NCCL.  The communicators of the set's batches cannot be made now, because they join in NCCL's own
/// threads.
void ProcessSet::open_captures(const CheckedRequest& request, const RunOne& run) {
  const std::int64_t no_elements = 0;
  CheckedRequest p;
  p.name = "captured calls";
  p.shape = &no_elements;
  p.gpu = request.gpu;
  p.stream = request.stream;
  p.signature.dtype = static_cast<std::uint8_t>(DType::f32);
  p.signature.reduce = static_cast<std::uint8_t>(Reduce::sum);
  p.signature.device = 0;
  p.signature.ndim = 1;
  result_of(run, operations_, p);
  captures_ = batch_.device()->captures();
}

/// Sends @p mine to all ranks of the set.
std::vector<CapturedCall> ProcessSet::exchange_captured(const CapturedCall& mine, const RunOne& run) {
  const std::string message = mine.message();
  CheckedRequest p;
  p.name = "captured call";
  p.in = message.data();
  p.dim0 = static_cast<std::int64_t>(message.size());
  p.shape = &p.dim0;
  p.signature.kind = static_cast<std::uint8_t>(Kind::allgather);
  p.signature.dtype = static_cast<std::uint8_t>(DType::u8);
  p.signature.ndim = 1;
  std::vector<std::int64_t> received;
  const std::string all = result_of(run, operations_, p, &received);
  std::vector<CapturedCall> calls;
  std::size_t at = 0;
  for (const std::int64_t bytes : received) {
    calls.push_back(CapturedCall::of(std::string_view(all).substr(at, static_cast<std::size_t>(bytes))));
    at += static_cast<std::size_t>(bytes);
  }
  return calls;
}

void ProcessSet::capture(std::span<const CheckedRequest> requests, const RunOne& run) {
  const gpu::StreamHandle stream = captured_stream(requests);
  const std::lock_guard one(capture_mutex_);
  check();
  const bool first = captured_calls_++ == 0;
  if (first) open_captures(requests.front(), run);
  CapturedCall mine;
  mine.requests = requests_text(requests);
  std::vector<gpu::DeviceTensor> tensors;
  for (const CheckedRequest& p : requests) tensors.push_back(device_tensor(p, world_.size));
  try {
    if (!captures_) throw Error(Code::usage, "", "its GPU cannot be used");
    if (first) mine.offer = captures_->offer();
    captures_->check(*requests.front().gpu, tensors);
  } catch (const Error& e) { mine.refusal = e.what(); }
  const std::vector<CapturedCall> all = exchange_captured(mine, run);
  if (first) {  // before the comparison, so that the next call works if this one is refused
    std::vector<std::string> offers;
    for (const CapturedCall& call : all) offers.push_back(call.offer);
    if (captures_) captures_->join(std::move(offers), [this] { check(); });
  }
  check_alike(all, world_.world_ranks, captured_calls_);
  captures_->record(std::move(tensors), stream);
}

}  // namespace hvd::core
