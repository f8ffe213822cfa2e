/// @file gpu_rank.h — a rank with a fake GPU: tensors that arrive late on a stream of its own.
#pragma once
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "world_of_threads.h"

extern "C" void fake_cuda_copy_later(void* to, const void* from, std::size_t bytes, void* stream, int delay_us);
extern "C" int cuStreamSynchronize(void* stream);

namespace hvd::testing {

/// Returns how often this process has called a function of the fake NCCL; 0 before the library is loaded.
inline int fake_nccl_calls(const char* function) {
  void* library = dlopen(std::getenv("HVD_NCCL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  if (!library) return 0;
  const int calls = reinterpret_cast<int (*)(const char*)>(dlsym(library, "fake_nccl_calls"))(function);
  dlclose(library);
  return calls;
}

/// Tensors of these kinds, a bit for each Kind, go through host memory; tensors of other kinds go through NCCL.
inline void send_through_host(core::Config& config, std::uint32_t kinds) {
  const struct {
    Kind kind;
    options::AnyVariable variable;
  } all[] = {{Kind::allreduce, "HOROVOD_GPU_ALLREDUCE"},
             {Kind::allgather, "HOROVOD_GPU_ALLGATHER"},
             {Kind::broadcast, "HOROVOD_GPU_BROADCAST"},
             {Kind::alltoall, "HOROVOD_GPU_ALLTOALL"},
             {Kind::reducescatter, "HOROVOD_GPU_REDUCESCATTER"}};
  for (const auto& [kind, variable] : all) config.set(variable, (kinds & bit_of(kind)) != 0 ? "MPI" : "NCCL");
}

/// Environment variables that a test has set; they are removed when it ends.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> all) {
    for (auto [name, value] : all) {
      setenv(name, value, 1);
      names_.push_back(name);
    }
  }
  ~Environment() {
    for (const char* name : names_) unsetenv(name);
  }

 private:
  std::vector<const char*> names_;
};

/// The ranks of the running test act like a framework that cannot name its stream.
inline bool knows_no_stream = false;

class GpuRank {
 public:
  explicit GpuRank(Rank& rank, int ordinal = -1)
      : rank_(rank), gpu_(cuda::Gpu::at(ordinal < 0 ? rank.rank() : ordinal)) {
    const cuda::CurrentContext current(gpu_.driver(), gpu_.context());
    stream_ = gpu_.make_stream();
  }

  ~GpuRank() { cuStreamSynchronize(stream_); }  // pending work writes into this object's memory
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  cuda::Gpu& gpu() { return gpu_; }
  void* stream() const { return stream_; }

  /// "Device memory" that has the bytes only after a delay, on the stream.
  void* tensor(const void* bytes, std::size_t count, int delay_us = 300) {
    void* memory = empty(count);
    fake_cuda_copy_later(memory, bytes, count, stream_, delay_us);
    return memory;
  }
  /// Sometimes at an odd multiple of 4, as views of larger tensors are.
  void* empty(std::size_t count) {
    storage_.emplace_back(count + 256, static_cast<unsigned char>(0x5a));
    auto* at = storage_.back().data();
    while (reinterpret_cast<std::uintptr_t>(at) % 128 != 0) ++at;
    return at + (storage_.size() % 3 == 0 ? 4 : 0);
  }
  hvd_request on_gpu(hvd_request q) const {
    q.device = gpu_.ordinal();
    q.stream = knows_no_stream ? cuda::whole_context : stream_;
    return q;
  }
  /// Waits for the operation as hvd_wait does, and then for the stream: the result can be read.
  void arrive(core::Operation& op) {
    if (!rank_.engine().wait(op, 120)) throw std::runtime_error("no end within two minutes");
    if (op.status != HVD_OK) throw Error(static_cast<Code>(op.status), "", op.error);
    if (!op.gpu || op.gpu->stream != cuda::whole_context) {
      op.hold(stream_);
      cuStreamSynchronize(stream_);
      return;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!op.arrived()) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("has not arrived within two minutes");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    op.hold(op.gpu->stream);
  }
  void release(core::Operation& op) { rank_.engine().operations().release(op); }
  void run(const hvd_request& q) {
    core::Operation& op = rank_.submit(on_gpu(q));
    arrive(op);
    release(op);
  }
  /// Returns the result as T, from q.out if it lies there, with its first dimension in *rows.
  template <class T>
  std::vector<T> take(const hvd_request& q, std::int64_t* rows = nullptr,
                      std::vector<std::int64_t>* received = nullptr) {
    core::Operation& op = rank_.submit(on_gpu(q));
    arrive(op);
    std::size_t count = 1;
    for (std::int64_t d : op.result_shape) count *= static_cast<std::size_t>(d);
    if (rows) *rows = op.result_shape[0];
    if (received) *received = op.received;
    std::vector<T> result(count);
    const bool is_given = q.out_bytes > 0 && q.out_bytes == count * sizeof(T);  // the caller's memory takes it
    EXPECT((op.result == nullptr || count == 0) == (is_given || count == 0));
    if (count > 0) std::memcpy(result.data(), is_given ? q.out : op.result, count * sizeof(T));
    release(op);
    return result;
  }

 private:
  Rank& rank_;
  cuda::Gpu& gpu_;
  void* stream_ = nullptr;
  std::deque<std::vector<unsigned char>> storage_;
};

}  // namespace hvd::testing
