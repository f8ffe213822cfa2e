#include "gpu/cuda/staging.h"

#include <cstring>
#include <string>

namespace hvd::cuda {
namespace {

Pointer address(const void* p) { return reinterpret_cast<Pointer>(p); }

}  // namespace

void* Staging::allocate(std::size_t bytes) {
  void* pinned = gpu_.allocate_pinned(bytes);
  given_.insert(pinned);
  return pinned;
}

void Staging::wait_for(const gpu::DeviceTensor& tensor) {
  const auto& driver = gpu_.driver();
  if (tensor.ready) driver.check(driver.stream_wait_event(stream_, mark_of(tensor).event(), 0), "cuStreamWaitEvent");
}

void* Staging::begin(const gpu::DeviceTensor& tensor, int rank) {
  const CurrentContext current(gpu_.driver(), gpu_.context());
  const auto& driver = gpu_.driver();
  const std::size_t bytes = tensor.bytes();
  void* pinned = allocate(bytes);
  const bool reads = tensor.kind != Kind::broadcast || tensor.root == rank;
  if (bytes > 0 && reads) {
    wait_for(tensor);
    driver.check(driver.copy_to_host(pinned, address(tensor.in), bytes, stream_), "cuMemcpyDtoHAsync");
    copies_.push_back(gpu_.mark(stream_));
    inputs_.push_back({tensor.ready, std::string(tensor.name)});
  }
  return pinned;
}

bool Staging::arrived() const {
  for (const auto& mark : copies_)
    if (!mark->reached()) return false;
  return true;
}

std::shared_ptr<gpu::DeviceCompletion> Staging::give_back(gpu::DeviceTensor& tensor, void* pinned,
                                                          std::span<const std::byte> result) {
  copies_.clear();
  inputs_.clear();
  const CurrentContext current(gpu_.driver(), gpu_.context());
  const auto& driver = gpu_.driver();
  // In begin(), a rank that only receives a broadcast has not waited for the tensor.
  wait_for(tensor);
  // Pinned memory of a result whose size was not known to begin().
  void* through = nullptr;
  if (!is_among(tensor.kind, taken_kinds)) {
    if (tensor.bytes() > 0)
      driver.check(driver.copy_to_device(address(tensor.out), pinned, tensor.bytes(), stream_), "cuMemcpyHtoDAsync");
  } else if (result.data()) {
    const std::size_t bytes = result.size();
    through = allocate(bytes);
    std::memcpy(through, result.data(), bytes);
    if (!tensor.takes(bytes)) {
      tensor.result = gpu_.allocate(bytes, stream_);
      gpu_.lend(tensor.result, stream_);
    }
    if (bytes > 0)
      driver.check(driver.copy_to_device(tensor.destination(), through, bytes, stream_), "cuMemcpyHtoDAsync");
  }
  auto end = running_.add(gpu_.mark(stream_));
  free(pinned, end->mark);
  if (through) free(through, end->mark);
  return end;
}

void Staging::free(void* pinned, std::shared_ptr<Mark> after) {
  given_.erase(pinned);
  gpu_.free_pinned(pinned, std::move(after));
}

void Staging::drop(bool keep) {
  copies_.clear();
  inputs_.clear();
  if (keep || given_.empty()) return;
  const CurrentContext current(gpu_.driver(), gpu_.context());
  const auto mark = gpu_.mark(stream_);
  while (!given_.empty()) free(*given_.begin(), mark);
}

}  // namespace hvd::cuda
