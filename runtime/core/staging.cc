#include "core/staging.h"

#include <cstdlib>
#include <cstring>

#include "core/name_entry.h"

namespace hvd::core {

using cuda::CurrentContext;
using cuda::Pointer;

namespace {

Pointer address(const void* p) { return reinterpret_cast<Pointer>(p); }

/// The tensor; of an allgather or alltoall, this rank's part.
std::size_t bytes_of(const Operation& op) {
  const Signature& s = op.entry->signature;
  const auto bytes = static_cast<std::size_t>(s.payload_bytes());
  const bool rows = s.operation() == Kind::allgather || s.operation() == Kind::alltoall;
  return rows ? bytes * static_cast<std::size_t>(op.dim0) : bytes;
}

}  // namespace

void Staging::begin(Operation& op, int rank) {
  if (!op.gpu) return;
  const Signature& s = op.entry->signature;
  const CurrentContext current(gpu_.driver(), gpu_.context());
  const auto& driver = gpu_.driver();
  op.gpu->staged = true;
  op.gpu->out = op.out;
  const std::size_t bytes = bytes_of(op);
  void* pinned = gpu_.allocate_pinned(bytes);
  given_.insert(pinned);
  op.gpu->pinned = pinned;
  const bool reads = s.operation() != Kind::broadcast || s.root == rank;
  if (bytes > 0 && reads) {
    if (op.gpu->ready) driver.check(driver.stream_wait_event(stream_, op.gpu->ready->event(), 0), "cuStreamWaitEvent");
    driver.check(driver.copy_to_host(pinned, address(op.in), bytes, stream_), "cuMemcpyDtoHAsync");
    copies_.push_back(gpu_.mark(stream_));
  }
  op.in = pinned;
  if (op.out) op.out = pinned;
}

bool Staging::arrived() const {
  for (const auto& mark : copies_)
    if (!mark->reached()) return false;
  return true;
}

void Staging::give_back(Operation& op) {
  copies_.clear();
  const CurrentContext current(gpu_.driver(), gpu_.context());
  const auto& driver = gpu_.driver();
  if (op.gpu->ready)  // a broadcast's other ranks have not waited for it yet
    driver.check(driver.stream_wait_event(stream_, op.gpu->ready->event(), 0), "cuStreamWaitEvent");
  void* through = nullptr;  // pinned, of a result whose size only now is known; it is in ordinary memory
  if (op.gpu->out) {
    const auto bytes = static_cast<std::size_t>(op.entry->signature.payload_bytes());
    if (bytes > 0)
      driver.check(driver.copy_to_device(address(op.gpu->out), op.gpu->pinned, bytes, stream_), "cuMemcpyHtoDAsync");
  } else if (op.result) {
    std::size_t bytes = element_bytes(op.entry->signature.type());
    for (std::int64_t d : op.result_shape) bytes *= static_cast<std::size_t>(d);
    through = gpu_.allocate_pinned(bytes);
    given_.insert(through);
    std::memcpy(through, op.result, bytes);
    const Pointer result = gpu_.allocate(bytes, stream_);
    gpu_.lend(result, stream_);
    std::free(op.result);
    op.result = reinterpret_cast<void*>(result);
    op.gpu->result = true;
    if (bytes > 0) driver.check(driver.copy_to_device(result, through, bytes, stream_), "cuMemcpyHtoDAsync");
  }
  op.gpu->end = running_.add(gpu_.mark(stream_));
  free(op.gpu->pinned, op.gpu->end->mark);
  if (through) free(through, op.gpu->end->mark);
  op.gpu->ready.reset();
  op.gpu->staged = false;
}

void Staging::free(void* pinned, std::shared_ptr<cuda::Mark> after) {
  given_.erase(pinned);
  gpu_.free_pinned(pinned, std::move(after));
}

void Staging::drop(bool keep) {
  copies_.clear();
  if (keep || given_.empty()) return;
  const CurrentContext current(gpu_.driver(), gpu_.context());
  const auto mark = gpu_.mark(stream_);
  while (!given_.empty()) free(*given_.begin(), mark);
}

}  // namespace hvd::core
