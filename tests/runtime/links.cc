/// @file links.cc — measures the bytes that an allreduce sends over each host's network: links ELEMENTS ROUNDS.
///
/// Every rank checks the results. One rank of each host reads the counters of its interfaces. Rank 0 prints a line
/// "host N sent S received R of B" for each host: bytes on the wire of all rounds, and bytes of the tensors.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "hvd/hvd.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "links: %s: %s\n", what, hvd_last_error());
  std::_Exit(1);
}

hvd_request request(hvd_kind kind, hvd_dtype dtype, const char* name, const int64_t* shape, const void* in, void* out) {
  hvd_request q{};
  q.struct_size = sizeof q;
  q.kind = kind;
  q.dtype = dtype;
  q.reduce = HVD_SUM;
  q.name = name;
  q.shape = shape;
  q.ndim = 1;
  q.device = HVD_HOST_DEVICE;
  q.in = in;
  q.out = out;
  return q;
}

struct Counted {
  int64_t received = 0, sent = 0;
};

/// The counters of all interfaces in this network namespace but the loopback.
Counted count() {
  Counted all;
  std::FILE* file = std::fopen("/proc/self/net/dev", "r");
  if (!file) fail("/proc/self/net/dev");
  char line[512], name[64];
  while (std::fgets(line, sizeof line, file)) {
    long long received = 0, sent = 0;
    if (std::sscanf(line, " %63[^:]: %lld %*d %*d %*d %*d %*d %*d %*d %lld", name, &received, &sent) != 3) continue;
    if (std::strcmp(name, "lo") == 0) continue;
    all.received += received;
    all.sent += sent;
  }
  std::fclose(file);
  return all;
}

void barrier() {
  hvd_request q = request(HVD_BARRIER, HVD_F32, "barrier", nullptr, nullptr, nullptr);
  q.ndim = 0;
  if (hvd_run(&q) != HVD_OK) fail("barrier");
}

/// Sums of whole numbers: they are exact in any order, so the result is that of any flat algorithm.
void allreduce(int64_t elements, const hvd_world& world) {
  std::vector<float> in(static_cast<std::size_t>(elements)), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>((world.rank + 1) * static_cast<int>(i % 1009));
  const hvd_request q = request(HVD_ALLREDUCE, HVD_F32, "tensor", &elements, in.data(), out.data());
  if (hvd_run(&q) != HVD_OK) fail("allreduce");
  const int ranks = world.size * (world.size + 1) / 2;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i] != static_cast<float>(ranks * static_cast<int>(i % 1009))) fail("a wrong result");
}

void print(const hvd_world& world, Counted mine, int64_t tensor_bytes) {
  // Row by rank: local rank, sent, received.
  int64_t row[3] = {world.local_rank, mine.sent, mine.received};
  const int64_t shape = 3;
  const hvd_request q = request(HVD_ALLGATHER, HVD_I64, "counted", &shape, row, nullptr);
  hvd_handle handle = 0;
  void* data = nullptr;
  int64_t dims[64];
  int32_t ndim = 0;
  if (hvd_submit(&q, &handle) != HVD_OK || hvd_wait(handle, 60) != HVD_OK ||
      hvd_take(handle, &data, dims, &ndim) != HVD_OK)
    fail("allgather");
  const auto* rows = static_cast<const int64_t*>(data);
  for (int r = 0, host = 0; r < world.size && world.rank == 0; ++r)
    if (rows[3 * r] == 0)
      std::printf("host %d sent %lld received %lld of %lld\n", host++, static_cast<long long>(rows[3 * r + 1]),
                  static_cast<long long>(rows[3 * r + 2]), static_cast<long long>(tensor_bytes));
  hvd_free(data);
  hvd_release(handle);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t elements = argc > 1 ? std::atoll(argv[1]) : 2 << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 2;
  alarm(100);  // never hang
  hvd_world world;
  if (hvd_init(nullptr) != HVD_OK || hvd_get_world(&world) != HVD_OK) fail("init");
  allreduce(elements, world);  // makes the connections
  barrier();
  const Counted before = count();
  barrier();
  for (int i = 0; i < rounds; ++i) allreduce(elements, world);
  barrier();
  const Counted after = count();
  print(world, {after.received - before.received, after.sent - before.sent}, rounds * elements * 4);
  return hvd_shutdown() == HVD_OK ? 0 : 1;
}
