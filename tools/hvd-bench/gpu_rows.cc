/// The rows about tensors on a GPU: the processor time that the runtime needs in a step.
///
/// The 161 gradients of ResNet-50 are submitted in three ways: one by one and waited for together; as one group; one by
/// one at the pace of a backward pass.  A real driver and a real NCCL spend time in their calls too.  With
/// tests/gpu/fakes/nothing.cc, whose calls do nothing, the times are the runtime's own, and the calls are counted:
///
///   export HVD_CUDA_LIBRARY=build/tests/gpu/fakes/libfakenothing.so HVD_NCCL_LIBRARY=$HVD_CUDA_LIBRARY
///   mpirun -np 2 build/tools/hvd-bench/hvd-bench --only gpu
#include <dlfcn.h>
#include <mpi.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/format.h"
#include "bench.h"
#include "options/variable.h"

namespace hvd::bench {
namespace {

/// The functions of the driver that the rows need: memory, and a stream. The runtime finds the same driver
/// (runtime/gpu/cuda/driver.h).
struct BenchGpu {
  int ordinal = 0;
  void* stream = nullptr;
  int (*allocate)(unsigned long long* address, std::size_t bytes) = nullptr;
  void (*calls)(long* driver, long* nccl) = nullptr;  ///< counters of the fake library; nullptr: a real driver
  long (*groups)() = nullptr;                         ///< likewise: the number of NCCL's groups
  std::string why_not;
};

BenchGpu card() {
  BenchGpu c;
  const char* named = options::value_of("HVD_CUDA_LIBRARY");
  void* library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    c.why_not = dlerror();
    return c;
  }
  auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (!function && c.why_not.empty()) c.why_not = std::string("the driver lacks ") + symbol;
  };
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*make_stream)(void**, unsigned, int) = nullptr;
  find(init, "cuInit");
  find(count, "cuDeviceGetCount");
  find(get, "cuDeviceGet");
  find(retain, "cuDevicePrimaryCtxRetain");
  find(push, "cuCtxPushCurrent_v2");
  find(make_stream, "cuStreamCreateWithPriority");
  find(c.allocate, "cuMemAlloc_v2");
  if (!c.why_not.empty()) return c;
  c.calls = reinterpret_cast<decltype(c.calls)>(dlsym(library, "nothing_calls"));
  c.groups = reinterpret_cast<decltype(c.groups)>(dlsym(library, "nothing_groups"));
  int gpus = 0, device = 0;
  void* context = nullptr;
  if (init(0) != 0 || count(&gpus) != 0 || gpus == 0) {
    c.why_not = "the driver sees no GPU";
    return c;
  }
  const char* local = environment_value("OMPI_COMM_WORLD_LOCAL_RANK");
  c.ordinal = (local ? std::atoi(local) : 0) % gpus;
  if (get(&device, c.ordinal) != 0 || retain(&context, device) != 0 || push(context) != 0 ||
      make_stream(&c.stream, 0, 0) != 0)
    c.why_not = "the GPU cannot be used";
  return c;
}

/// Elements of ResNet-50's 161 parameters, by its definition.
std::vector<std::int64_t> resnet50() {
  std::vector<std::int64_t> all{64 * 3 * 7 * 7, 64, 64};
  std::int64_t inside = 64;
  constexpr struct {
    std::int64_t width;
    int blocks;
  } stages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto [w, blocks] : stages)
    for (int block = 0; block < blocks; ++block) {
      all.insert(all.end(), {w * inside, w, w, w * w * 9, w, w, 4 * w * w, 4 * w, 4 * w});
      if (block == 0) all.insert(all.end(), {4 * w * inside, 4 * w, 4 * w});
      inside = 4 * w;
    }
  all.insert(all.end(), {1000 * 2048, 1000});
  return all;
}

double clock_us(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// The processor time of a step, in microseconds.
struct StepTimes {
  Stats submitting, waiting;  ///< of the caller's thread
  Stats others;               ///< of all other threads: the engine's, which spins briefly before it sleeps, and MPI's
  Stats all;
};

enum class Way { one_by_one, group, paced };
constexpr double pace_us = 100;  ///< paced: the time between two gradients

/// The rounds of a step. Between them the engine's thread goes to sleep, as it does while a step's tensors are
/// computed.
class GpuSteps {
 public:
  explicit GpuSteps(const BenchGpu& card) : elements_(resnet50()), handles_(elements_.size()) {
    for (std::size_t i = 0; i < elements_.size(); ++i) names_.push_back(formatted("gradient.{}", i));
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      unsigned long long at = 0;
      if (card.allocate(&at, static_cast<std::size_t>(elements_[i]) * sizeof(float)) != 0) stop("GPU memory");
      void* p = reinterpret_cast<void*>(at);
      requests_.push_back(sum(names_[i].c_str(), &elements_[i], p, p));
      requests_.back().device = card.ordinal;
      requests_.back().stream = card.stream;
      // A factor on each side: otherwise a sum over one rank would need neither the fusion buffer nor NCCL.
      requests_.back().prescale = 0.5;
      requests_.back().postscale = 2;
    }
  }

  StepTimes run(Way way, int rounds) {
    StepTimes times;
    for (int i = -5; i < rounds; ++i) {
      usleep(2000);
      MPI_Barrier(MPI_COMM_WORLD);
      const double all = clock_us(CLOCK_PROCESS_CPUTIME_ID), begin = clock_us(CLOCK_THREAD_CPUTIME_ID);
      const double waited = submit(way);
      const double submitted = clock_us(CLOCK_THREAD_CPUTIME_ID);
      need(hvd_wait_many(handles_.data(), handles_.size(), -1), "hvd_wait_many");
      need(hvd_release_many(handles_.data(), handles_.size()), "hvd_release_many");
      const double end = clock_us(CLOCK_THREAD_CPUTIME_ID);
      usleep(1000);  // the rest of the other threads' work for this step
      const double slept = clock_us(CLOCK_THREAD_CPUTIME_ID) - end;
      const double total = clock_us(CLOCK_PROCESS_CPUTIME_ID) - all - slept - waited;
      if (i < 0) continue;
      times.submitting.add(submitted - begin - waited);
      times.waiting.add(end - submitted);
      times.others.add(total - (end - begin - waited));
      times.all.add(total);
    }
    return times;
  }

  std::size_t tensors() const { return elements_.size(); }

 private:
  /// The processor time that passed during the wait for the next gradient.
  double submit(Way way) {
    if (way == Way::group) {
      need(hvd_submit_many(requests_.data(), requests_.size(), HVD_GROUP, handles_.data()), "hvd_submit_many");
      return 0;
    }
    double due = clock_us(CLOCK_MONOTONIC), waited = 0;
    for (std::size_t t = 0; t < requests_.size(); ++t) {
      if (way == Way::paced) {
        const double begin = clock_us(CLOCK_THREAD_CPUTIME_ID);
        due += pace_us;
        while (clock_us(CLOCK_MONOTONIC) < due) continue;
        waited += clock_us(CLOCK_THREAD_CPUTIME_ID) - begin;
      }
      need(hvd_submit(&requests_[t], &handles_[t]), "hvd_submit");
    }
    return waited;
  }

  const std::vector<std::int64_t> elements_;
  std::vector<std::string> names_;
  std::vector<hvd_request> requests_;
  std::vector<hvd_handle> handles_;
};

/// The sum is the last of four.
void tell(BenchReport& report, const BenchGpu& card, GpuSteps& steps, Way way) {
  const int rounds = way == Way::paced ? 50 : 200;
  long before[2] = {}, after[2] = {};
  if (card.calls) card.calls(&before[0], &before[1]);
  const long groups_before = card.groups ? card.groups() : 0;
  const StepTimes times = steps.run(way, rounds);
  if (card.calls) card.calls(&after[0], &after[1]);
  const std::string what = std::to_string(steps.tensors()) + (way == Way::group   ? " grouped, "
                                                              : way == Way::paced ? " paced, "
                                                                                  : " on a GPU, ");
  report.add({"gpu", what + "submit", {{"hvd", times.submitting}}, {}, 0, {}});
  report.add({"gpu", what + "wait", {{"hvd", times.waiting}}, {}, 0, {}});
  report.add({"gpu", what + "others", {{"hvd", times.others}}, {}, 0, {}});
  report.add({"gpu", what + "all", {{"hvd", times.all}}, {}, 0, {}});
  if (!card.calls) return;
  if (after[1] == before[1]) stop("NCCL was not called");
  auto each = [&](int which) { return static_cast<double>(after[which] - before[which]) / (rounds + 5); };
  report.add({"gpu",
              what + "calls",
              {},
              formatted("{:.1f} of the driver, {:.1f} of NCCL a step, by rank 0", each(0), each(1)),
              each(0),
              "calls of the driver"});
  if (!card.groups) return;
  const double groups = static_cast<double>(card.groups() - groups_before) / (rounds + 5);
  report.add({"gpu", what + "groups", {}, formatted("{:.1f} of NCCL a step", groups), groups, "groups of NCCL"});
}

}  // namespace

bool gpu_rows(BenchReport& report, const std::string& only) {
  const BenchGpu c = card();
  int can = c.why_not.empty() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &can, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (!can) {
    if (!only.empty()) report.add({"gpu", "tensors on a GPU", {}, "not measured: " + c.why_not, 0, ""});
    return false;
  }
  GpuSteps steps(c);
  for (const Way way : {Way::one_by_one, Way::group, Way::paced}) tell(report, c, steps, way);
  return true;
}

}  // namespace hvd::bench
