/// A rank of tests/gpu/test_gpu_aware_mpi.py: "device memory" of the fake CUDA driver, which is host memory, through
/// the C interface and a real MPI.  by_mpi all: every operation, "fine N" at the end; by_mpi kill: the last rank dies,
/// and the others say what they hear of it.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "hvd/hvd.h"

namespace {

int rank = 0, ranks = 1;
constexpr double limit = 60;  ///< seconds; what ends later is a hang

void fail(const std::string& what) {
  std::printf("rank %d: %s: %s\n", rank, what.c_str(), hvd_last_error());
  std::fflush(stdout);
  _exit(1);
}

hvd_request request(hvd_kind kind, const char* name, const std::vector<std::int64_t>& shape, const void* in,
                    void* out) {
  static std::deque<std::vector<std::int64_t>> shapes;
  shapes.push_back(shape);
  hvd_request q{};
  q.struct_size = sizeof q;
  q.kind = kind;
  q.dtype = HVD_F32;
  q.reduce = HVD_SUM;
  q.name = name;
  q.shape = shapes.back().data();
  q.ndim = static_cast<int>(shape.size());
  q.prescale = q.postscale = 1;
  q.device = rank;
  q.in = in;
  q.out = out;
  return q;
}

/// Until the result has really arrived.
int finish(hvd_handle h) {
  const int status = hvd_wait(h, limit);
  if (status != HVD_OK) return status;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
  int done = 0;
  while (!done) {
    if (const int code = hvd_poll(h, &done); code != HVD_OK) return code;
    if (std::chrono::steady_clock::now() > end) return HVD_TIMEOUT;
  }
  return HVD_OK;
}

void run(const hvd_request& q) {
  hvd_handle h = 0;
  if (hvd_submit(&q, &h) != HVD_OK || finish(h) != HVD_OK) fail(q.name);
  hvd_release(h);
}

std::vector<float> take(const hvd_request& q) {
  hvd_handle h = 0;
  if (hvd_submit(&q, &h) != HVD_OK || finish(h) != HVD_OK) fail(q.name);
  void* data = nullptr;
  std::int64_t shape[8];
  std::int32_t ndim = 0;
  if (hvd_take(h, &data, shape, &ndim) != HVD_OK) fail(q.name);
  std::size_t n = 1;
  for (int i = 0; i < ndim; ++i) n *= static_cast<std::size_t>(shape[i]);
  std::vector<float> result(static_cast<const float*>(data), static_cast<const float*>(data) + n);
  hvd_free(data);
  hvd_release(h);
  return result;
}

void expect(bool fine, const char* what) {
  if (!fine) fail(std::string(what) + " is wrong");
}

void sums(std::size_t n, int round) {
  std::vector<float> x(n), expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i % 7) + static_cast<float>(rank + round);
    expected[i] = static_cast<float>(ranks) * static_cast<float>(i % 7) +
                  static_cast<float>(ranks * (ranks - 1) / 2 + ranks * round);
  }
  const std::string name = "sum" + std::to_string(n);
  run(request(HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(n)}, x.data(), x.data()));
  expect(x == expected, "a sum");
}

void others(int round) {
  const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
  std::vector<float> b(50000, static_cast<float>(rank + round));
  hvd_request q = request(HVD_BROADCAST, "b", {50000}, b.data(), b.data());
  q.root = ranks - 1;
  run(q);
  expect(b == std::vector<float>(50000, static_cast<float>(ranks - 1 + round)), "a broadcast");

  const std::vector<float> mine((me + 1) * 2, static_cast<float>(rank));
  std::vector<float> all;
  for (int r = 0; r < ranks; ++r) all.insert(all.end(), static_cast<std::size_t>(r + 1) * 2, static_cast<float>(r));
  expect(take(request(HVD_ALLGATHER, "g", {rank + 1, 2}, mine.data(), nullptr)) == all, "an allgather");

  std::vector<float> out, in;
  const std::vector<std::int64_t> splits(n, rank + 1);
  for (int r = 0; r < ranks; ++r) {
    out.insert(out.end(), me + 1, static_cast<float>(rank * 100 + r));
    in.insert(in.end(), static_cast<std::size_t>(r + 1), static_cast<float>(r * 100 + rank));
  }
  q = request(HVD_ALLTOALL, "a", {(rank + 1) * ranks}, out.data(), nullptr);
  q.splits = splits.data();
  q.num_splits = ranks;
  expect(take(q) == in, "an alltoall");

  const std::vector<float> rows(n * 3, 2);
  expect(take(request(HVD_REDUCESCATTER, "r", {ranks, 3}, rows.data(), nullptr)) ==
             std::vector<float>(3, static_cast<float>(2 * ranks)),
         "a reducescatter");

  std::vector<std::int16_t> shorts(9, 1);
  q = request(HVD_ALLREDUCE, "host", {9}, shorts.data(), shorts.data());
  q.dtype = HVD_I16;
  run(q);
  expect(shorts == std::vector<std::int16_t>(9, static_cast<std::int16_t>(ranks)), "a sum of 16-bit integers");
}

/// Who knows no stream polls; what would have one wait is refused.
void without_a_stream() {
  std::vector<float> x(10, 1);
  hvd_request q = request(HVD_ALLREDUCE, "whole", {10}, x.data(), x.data());
  q.stream = HVD_WHOLE_CONTEXT;
  expect(hvd_run(&q) == HVD_USAGE, "hvd_run without a stream");
  hvd_handle h = 0;
  if (hvd_submit(&q, &h) != HVD_OK || finish(h) != HVD_OK) fail(q.name);
  expect(hvd_after(h, HVD_WHOLE_CONTEXT) == HVD_USAGE, "hvd_after without a stream");
  hvd_release(h);
  expect(x == std::vector<float>(10, static_cast<float>(ranks)), "a sum without a stream");
}

/// The last rank goes while the others' messages wait for its part of a batch that it had come to.
void lose() {
  sums(100000, 0);
  const bool last = rank == ranks - 1;
  std::vector<float> x(100000, 1);
  if (last) {  // what makes its tensor takes long
    using Later = void(void* to, const void* from, std::size_t bytes, void* stream, int delay_us);
    void* driver = dlopen(std::getenv("HVD_CUDA_LIBRARY"), RTLD_NOW);
    reinterpret_cast<Later*>(dlsym(driver, "fake_cuda_copy_later"))(x.data(), x.data(), 4, nullptr, 900000000);
  }
  const auto began = std::chrono::steady_clock::now();
  const hvd_request q = request(HVD_ALLREDUCE, "sum100000", {100000}, x.data(), x.data());
  hvd_handle h = 0;
  int status = hvd_submit(&q, &h);
  if (last) {
    sleep(1);
    raise(SIGKILL);
  }
  if (status == HVD_OK) status = finish(h);
  const std::string text = status == HVD_OK ? "no error" : hvd_last_error();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("SURVIVOR %d %.2f %s\n", rank, seconds, text.c_str());
  std::fflush(stdout);
  for (;;) pause();  // an end of this one would be news for the others; the test ends all
}

}  // namespace

int main(int argc, char** argv) {
  alarm(100);
  if (hvd_init(nullptr) != HVD_OK) fail("init");
  hvd_world world{};
  hvd_get_world(&world);
  rank = world.rank, ranks = world.size;
  if (argc > 1 && std::strcmp(argv[1], "kill") == 0) lose();
  for (int round = 0; round < 3; ++round) {
    sums(5, round);
    sums(300000, round);
    others(round);
  }
  without_a_stream();
  std::printf("fine %d\n", rank);
  std::fflush(stdout);
  hvd_shutdown();
}
