/// @file hvd.cc — the C interface: the world, process sets and memory.  operations.cc has the operations, recording.cc
/// the timelines and steps.
#include "hvd/hvd.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "api/runtime.h"
#include "base/exception_barrier.h"
#include "gpu/device.h"
#include "memory/arena.h"
#include "memory/result_memory.h"

using hvd::Code;
using hvd::Error;
using hvd::exception_barrier;
using hvd::need;
using hvd::api::Use;
using hvd::memory::Arena;

namespace {

hvd_world numbers_of(const hvd::World& w, bool threads_multiple) {
  return {w.rank,         w.size,         w.local_rank(),  w.local_size(),
          w.cross_rank(), w.cross_size(), w.homogeneous(), threads_multiple};
}

}  // namespace

int hvd_init(const hvd_init_options* options) {
  return exception_barrier([&] { hvd::api::init(options); });
}

int hvd_shutdown(void) {
  return exception_barrier([] { hvd::api::shutdown(); });
}

int hvd_is_initialized(void) { return hvd::api::initialized() ? 1 : 0; }

int hvd_expect(hvd_world* world) {
  return exception_barrier([&] {
    need(world, "world");
    *world = numbers_of(hvd::api::expect(), true);
  });
}

int hvd_get_world(hvd_world* world) {
  return exception_barrier([&] {
    need(world, "world");
    const Use e;
    *world = numbers_of(e->world(), e->threads_multiple());
  });
}

void hvd_free(void* data) {
  if (data && !Arena::process().free(data) && !hvd::gpu::platform().free_result(data))
    hvd::memory::ResultMemory::process().give_back(data);
}

int hvd_alloc(size_t bytes, void** data) {
  return exception_barrier([&] {
    need(data, "data");
    *data = Arena::process().allocate(bytes);
    if (*data) return;
    constexpr std::size_t page = 4096;
    if (bytes > SIZE_MAX - page) throw Error(Code::unavailable, "hvd_alloc", "more bytes than an address can count");
    const std::size_t rounded = std::max<std::size_t>((bytes + page - 1) / page, 1) * page;
    if (!(*data = std::aligned_alloc(page, rounded)))
      throw Error(Code::unavailable, "hvd_alloc", "no memory for " + std::to_string(bytes) + " bytes");
    std::memset(*data, 0, rounded);
  });
}

void* hvd_gpu_alloc(size_t bytes, int device, void*) {
  void* data = nullptr;
  static_cast<void>(exception_barrier([&] { data = hvd::gpu::platform().take_registered(device, bytes); }));
  return data;
}

void hvd_gpu_free(void* data, size_t, int device, void* stream) {
  if (data)
    static_cast<void>(exception_barrier([&] { hvd::gpu::platform().give_back_registered(data, device, stream); }));
}

int hvd_set_add(const int32_t* ranks, int32_t count, int32_t* set) {
  return exception_barrier([&] {
    need(set, "set");
    if (count < 1) throw Error(Code::usage, "add process set []", "a process set needs at least one rank");
    need(ranks, "ranks");
    const Use e;
    *set = e->add_set(std::vector<int>(ranks, ranks + count));
  });
}

int hvd_set_remove(int32_t set) {
  return exception_barrier([&] {
    const Use e;
    e->remove_set(set);
  });
}

int hvd_set_get(int32_t set, int32_t* rank, int32_t* size, int32_t* ranks) {
  return exception_barrier([&] {
    need(rank, "rank");
    need(size, "size");
    const Use e;
    const auto known = e->known(set);
    *rank = known->rank;
    *size = static_cast<int32_t>(known->ranks.size());
    if (ranks) std::copy(known->ranks.begin(), known->ranks.end(), ranks);
  });
}

int hvd_built(const char* what) {
  if (!what) return 0;
  if (std::strcmp(what, "mpi") == 0) return hvd::api::mpi_available() ? 1 : 0;
  return std::strcmp(what, "shm") == 0 ? 1 : hvd::gpu::platform().version(what);
}

int hvd_use_memory(const char* framework) {
  return exception_barrier([&] {
    need(framework, "framework");
    if (std::strcmp(framework, "torch") != 0)
      throw Error(Code::usage, "hvd_use_memory", "'" + std::string(framework) + "' is not torch");
    std::string why;
    if (!hvd::gpu::platform().use_torch_memory(why)) throw Error(Code::unavailable, "hvd_use_memory", why);
  });
}

int hvd_departed(void) {
  bool departed = true;
  const int status = exception_barrier([&] {
    const Use e;
    departed = e->departed();
  });
  return status != HVD_OK || departed ? 1 : 0;
}

int hvd_check_world(void) {
  return exception_barrier([] {
    const Use e;
    e->check();
  });
}

const char* hvd_last_error(void) { return hvd::last_error().c_str(); }
const char* hvd_version(void) { return HVD_VERSION; }
