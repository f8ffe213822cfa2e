/// @file operations.cc — the C interface: operations, from their submission to their results.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "api/runtime.h"
#include "base/exception_barrier.h"
#include "common/read_ahead.h"
#include "core/operation/checked_request.h"
#include "gpu/device.h"
#include "hvd/hvd.h"

using hvd::Code;
using hvd::Error;
using hvd::exception_barrier;
using hvd::need;
using hvd::api::Use;
using hvd::core::CheckedRequest;
using hvd::core::Engine;
using hvd::core::Operation;
using hvd::core::OperationTable;
using hvd::core::ProcessSet;
using hvd::core::SetInfo;

namespace {

constexpr size_t most_at_once = 1 << 20;  ///< most tensors in one call

/// The process set of a request.  The set is valid while @p hold exists.  Throws Error{usage}.
ProcessSet& set_of(Engine& e, const hvd_request* q, std::shared_ptr<const SetInfo>& hold) {
  constexpr std::size_t needed = offsetof(hvd_request, set) + sizeof q->set;
  if (!q || q->struct_size < needed || q->set == HVD_GLOBAL_SET) return e.set();
  hold = e.known(q->set);
  if (!hold->set)
    throw Error(Code::usage, "process set " + std::to_string(q->set),
                "rank " + std::to_string(e.world().rank) + " is not a member");
  return *hold->set;
}

[[noreturn]] void unknown(hvd_handle handle) {
  throw Error(Code::usage, "handle " + std::to_string(handle), "is unknown, or was released");
}

/// Keeps an operation for the length of one call, even if another thread releases the handle meanwhile.
class Held {
 public:
  Held(Engine& e, hvd_handle handle) : operations_(e.operations()), op_(operations_.hold(handle)) {
    if (!op_) unknown(handle);
  }
  ~Held() { operations_.let_go(*op_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Operation& operator*() const { return *op_; }
  Operation* operator->() const { return op_; }

 private:
  OperationTable& operations_;
  Operation* op_;
};

/// The i-th request.  Callers may use an older, shorter struct.  The first request must have been checked.
const hvd_request* nth(const hvd_request* requests, size_t i) {
  return reinterpret_cast<const hvd_request*>(reinterpret_cast<const char*>(requests) + i * requests->struct_size);
}

/// Throws the operation's error, if it has failed.
void raise(const Operation& op) {
  if (op.status != HVD_OK) throw Error(static_cast<Code>(op.status), "", op.error);
}

/// Waits for an operation.  Returns false if it is still under way after the timeout.  Stores the operation's error in
/// @p failure, unless there is one already.
bool end_of(Engine& e, hvd_handle handle, double timeout_seconds, std::exception_ptr& failure) {
  const Held op(e, handle);
  if (!e.wait(*op, timeout_seconds)) return false;
  try {
    raise(*op);
    op->hold_own();
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
  return true;
}

}  // namespace

int hvd_submit(const hvd_request* request, hvd_handle* handle) {
  return exception_barrier([&] {
    need(handle, "handle");
    const Use e;
    std::shared_ptr<const SetInfo> hold;
    ProcessSet& set = set_of(*e, request, hold);
    Operation* op = nullptr;
    const CheckedRequest p = hvd::core::check_request(request, set.world(), e->gpus());
    e->submit(set, {&p, 1}, &op);
    *handle = OperationTable::handle(*op);
  });
}

int hvd_submit_many(const hvd_request* requests, size_t count, uint32_t flags, hvd_handle* handles) {
  return exception_barrier([&] {
    if (count == 0) return;
    need(requests, "requests");
    need(handles, "handles");
    if (count > most_at_once)
      throw Error(Code::usage, "count", std::to_string(count) + " is more than " + std::to_string(most_at_once));
    if (flags & ~(HVD_GROUP | HVD_CAPTURE)) throw Error(Code::usage, "flags", "unknown bits");
    const Use e;
    std::shared_ptr<const SetInfo> hold;
    ProcessSet& set = set_of(*e, requests, hold);
    thread_local std::vector<CheckedRequest> prepared;  // kept between calls: 128 KB for 1 000 tensors
    thread_local std::vector<Operation*> ops;
    ops.resize(count);
    prepared.clear();
    prepared.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const hvd_request* q = i == 0 ? requests : nth(requests, i);
      prepared.push_back(hvd::core::check_request(q, set.world(), e->gpus()));
      if (q->struct_size != requests->struct_size || q->set != requests->set)
        throw Error(Code::usage, "hvd_submit_many", "the requests are for different process sets", "one call for each");
    }
    if (flags & HVD_GROUP) hvd::core::make_group(prepared);
    if (flags & HVD_CAPTURE)
      e->capture(set, prepared, ops.data());
    else
      e->submit(set, prepared, ops.data());
    for (size_t i = 0; i < count; ++i) {
      hvd::fetch_later(ops, i, 1);
      handles[i] = OperationTable::handle(*ops[i]);
    }
  });
}

int hvd_poll(hvd_handle handle, int* done) {
  return exception_barrier([&] {
    need(done, "done");
    const Use e;
    if ((*done = e->operations().ended_well(handle) ? 1 : 0) != 0) return;
    const Held op(*e, handle);
    *done = op->done() && (op->status != HVD_OK || op->arrived()) ? 1 : 0;
  });
}

int hvd_wait(hvd_handle handle, double timeout_seconds) {
  return exception_barrier([&] {
    if (std::isnan(timeout_seconds)) throw Error(Code::usage, "timeout_seconds", "is not a number");
    const Use e;
    if (e->operations().ended_well(handle)) return;
    std::exception_ptr failure;
    if (!end_of(*e, handle, timeout_seconds, failure))
      throw Error(Code::timeout, "", "the operation is still under way");
    if (failure) std::rethrow_exception(failure);
  });
}

int hvd_wait_many(const hvd_handle* handles, size_t count, double timeout_seconds) {
  return exception_barrier([&] {
    if (count == 0) return;
    need(handles, "handles");
    if (std::isnan(timeout_seconds)) throw Error(Code::usage, "timeout_seconds", "is not a number");
    const Use e;
    const OperationTable& operations = e->operations();
    const bool limited = timeout_seconds >= 0;
    const std::int64_t end =
        limited ? hvd::memory::now_ns() + static_cast<std::int64_t>(std::min(timeout_seconds, 1e9) * 1e9) : 0;
    std::exception_ptr first;
    for (size_t i = 0; (i += operations.ended_well({handles + i, count - i})) < count; ++i) {
      const double left = limited ? std::max(1e-9 * static_cast<double>(end - hvd::memory::now_ns()), 0.0) : -1;
      if (!end_of(*e, handles[i], left, first)) throw Error(Code::timeout, "", "operations are still under way");
    }
    if (first) std::rethrow_exception(first);
  });
}

int hvd_after(hvd_handle handle, void* stream) {
  return exception_barrier([&] {
    const Use e;
    const Held op(*e, handle);
    if (!op->done()) throw Error(Code::usage, "hvd_after", "the operation is still under way", "hvd_wait first");
    raise(*op);
    if (stream == HVD_WHOLE_CONTEXT)
      throw Error(Code::usage, "hvd_after", "HVD_WHOLE_CONTEXT is no stream that can wait", "ask hvd_poll");
    op->hold(stream);
  });
}

int hvd_notify(hvd_handle handle, void (*ended)(void*), void* context) {
  return exception_barrier([&] {
    if (!ended) throw Error(Code::usage, "hvd_notify", "ended is NULL");
    const Use e;
    const Held op(*e, handle);
    if (!e->operations().listen(*op, ended, context))
      throw Error(Code::usage, "hvd_notify", "hvd_notify was already called for this handle");
  });
}

int hvd_take(hvd_handle handle, void** data, int64_t* shape, int32_t* ndim) {
  return exception_barrier([&] {
    need(data, "data");
    need(shape, "shape");
    need(ndim, "ndim");
    const Use e;
    const Held op(*e, handle);
    if (!op->done()) throw Error(Code::usage, "hvd_take", "the operation is still under way", "hvd_wait first");
    raise(*op);
    const bool lent = op->gpu && op->gpu->result;
    void* result = e->operations().take_result(*op);
    if (!result) throw Error(Code::usage, "hvd_take", "there is no result to take, or it was taken before");
    if (lent) op->gpu->device->lend_result(result, op->gpu->stream);
    *data = result;
    *ndim = static_cast<int32_t>(op->result_shape.size());
    std::copy(op->result_shape.begin(), op->result_shape.end(), shape);
  });
}

int hvd_take_splits(hvd_handle handle, int64_t* splits) {
  return exception_barrier([&] {
    need(splits, "splits");
    const Use e;
    const Held op(*e, handle);
    if (!op->done()) throw Error(Code::usage, "hvd_take_splits", "the operation is still under way", "hvd_wait first");
    raise(*op);
    if (op->received.empty()) throw Error(Code::usage, "hvd_take_splits", "only alltoall and allgather have splits");
    std::copy(op->received.begin(), op->received.end(), splits);
  });
}

int hvd_join_result(hvd_handle handle, int32_t* last_rank) {
  return exception_barrier([&] {
    need(last_rank, "last_rank");
    const Use e;
    const Held op(*e, handle);
    if (!op->done()) throw Error(Code::usage, "hvd_join_result", "the operation is still under way", "hvd_wait first");
    raise(*op);
    if (op->last_rank < 0) throw Error(Code::usage, "hvd_join_result", "the operation was no join");
    *last_rank = op->last_rank;
  });
}

int hvd_release(hvd_handle handle) {
  return exception_barrier([&] {
    const Use e;
    if (!e->operations().release(handle)) unknown(handle);
  });
}

int hvd_release_many(const hvd_handle* handles, size_t count) {
  return exception_barrier([&] {
    if (count == 0) return;
    need(handles, "handles");
    const Use e;
    if (const size_t good = e->operations().release({handles, count}); good < count)
      throw Error(
          Code::usage, "hvd_release_many",
          std::to_string(count - good) + " of " + std::to_string(count) + " handles are unknown, or were released");
  });
}

int hvd_run(const hvd_request* request) {
  return exception_barrier([&] {
    const Use e;
    std::shared_ptr<const SetInfo> hold;
    ProcessSet& set = set_of(*e, request, hold);
    const CheckedRequest p = hvd::core::check_request(request, set.world(), e->gpus());
    if (p.has_result())
      throw Error(Code::usage, "hvd_run",
                  std::string("an ") + name_of(p.signature.operation()) + " has a result to take",
                  "use hvd_submit, hvd_wait, hvd_take");
    if (p.stream == HVD_WHOLE_CONTEXT)
      throw Error(Code::usage, "hvd_run", "with HVD_WHOLE_CONTEXT there is a result to poll for",
                  "use hvd_submit, hvd_poll");
    Operation& op = e->run(set, p);
    if (op.status == HVD_OK && !op.gpu) {
      e->operations().release(op);
      return;
    }
    const hvd_handle handle = OperationTable::handle(op);
    const Held held(*e, handle);
    e->operations().release(op);
    raise(op);
    op.hold_own();
  });
}

int hvd_submit_and_wait(const hvd_request* request, double timeout_seconds, hvd_handle* handle) {
  return exception_barrier([&] {
    need(handle, "handle");
    *handle = 0;
    if (std::isnan(timeout_seconds)) throw Error(Code::usage, "timeout_seconds", "is not a number");
    const Use e;
    std::shared_ptr<const SetInfo> hold;
    ProcessSet& set = set_of(*e, request, hold);
    const CheckedRequest p = hvd::core::check_request(request, set.world(), e->gpus());
    const Operation& op = e->run(set, p, timeout_seconds);
    *handle = OperationTable::handle(op);
    if (!op.done()) throw Error(Code::timeout, "", "the operation is still under way");
    raise(op);
    op.hold_own();
  });
}
