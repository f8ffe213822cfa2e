/// @file world.cc — every operation over real processes: started by mpirun with any number of ranks, or alone.
///
/// Uses only the C interface.  Exit code 0 when every value on this rank is right.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hvd/hvd.h"

namespace {

int failures = 0;
hvd_world world;

#define EXPECT(condition)                                                                            \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      std::fprintf(stderr, "rank %d: %s:%d: %s  [%s]\n", world.rank, __FILE__, __LINE__, #condition, \
                   hvd_last_error());                                                                \
      if (++failures > 10) std::exit(1);                                                             \
    }                                                                                                \
  } while (0)

hvd_request request(hvd_kind kind, const char* name, const std::vector<int64_t>& shape, const void* in, void* out) {
  hvd_request q{};
  q.struct_size = sizeof q;
  q.kind = kind;
  q.dtype = HVD_F32;
  q.reduce = HVD_SUM;
  q.name = name;
  q.shape = shape.data();
  q.ndim = static_cast<int32_t>(shape.size());
  q.device = HVD_HOST_DEVICE;
  q.in = in;
  q.out = out;
  return q;
}

float value(int rank, std::size_t i) { return static_cast<float>((rank + 1) * static_cast<int>(i % 13 + 1)); }

void allreduce_sizes() {
  const float total = static_cast<float>(world.size * (world.size + 1) / 2);
  for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1000}, std::size_t{5000},
                        std::size_t{300000}, std::size_t{3000001}})
    for (int round = 0; round < 3; ++round)
      for (bool in_place : {false, true}) {
        std::vector<float> in(n), out(n);
        for (std::size_t i = 0; i < n; ++i) in[i] = value(world.rank, i);
        const std::vector<int64_t> shape{static_cast<int64_t>(n)};
        const std::string name = "sizes." + std::to_string(n);
        hvd_request q = request(HVD_ALLREDUCE, name.c_str(), shape, in.data(), in_place ? in.data() : out.data());
        EXPECT(hvd_run(&q) == HVD_OK);
        const float* got = in_place ? in.data() : out.data();
        for (std::size_t i = 0; i < n; ++i)
          if (got[i] != total * static_cast<float>(i % 13 + 1)) {
            EXPECT(got[i] == total * static_cast<float>(i % 13 + 1));
            break;
          }
      }
}

/// Memory that all ranks of a node map, on all ranks, on some, and in turns; values as with any other memory.
void registered(float* kept, std::size_t n) {
  const float total = static_cast<float>(world.size * (world.size + 1) / 2);
  const std::vector<int64_t> shape{static_cast<int64_t>(n)};
  for (int round = 0; round < 16; ++round) {
    void* fresh = nullptr;
    EXPECT(hvd_alloc(n * sizeof(float), &fresh) == HVD_OK);
    std::vector<float> plain(round % 4 == 3 ? n : 0);
    float* data = round % 2 ? static_cast<float*>(fresh) : kept;
    if (round % 4 == 3 && world.rank == round / 4 % world.size) data = plain.data();
    for (std::size_t i = 0; i < n; ++i) data[i] = value(world.rank, i);
    float* out = round % 8 == 4 ? static_cast<float*>(fresh) : data;
    hvd_request q = request(HVD_ALLREDUCE, "registered", shape, data, out);
    EXPECT(hvd_run(&q) == HVD_OK);
    for (std::size_t i = 0; i < n; ++i)
      if (out[i] != total * static_cast<float>(i % 13 + 1)) {
        EXPECT(out[i] == total * static_cast<float>(i % 13 + 1));
        break;
      }
    hvd_free(fresh);  // at once: other ranks may still have it mapped
  }
}

void many() {
  constexpr int count = 300;
  std::vector<std::vector<float>> tensors;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    tensors.emplace_back(static_cast<std::size_t>(i * 7 + 1), static_cast<float>(world.rank + i));
    names.push_back("many." + std::to_string(i));
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<hvd_handle> handles(count);
    for (int j = 0; j < count; ++j) {
      const int i = (j * 7 + world.rank * 11) % count;  // another order on every rank
      std::fill(tensors[static_cast<std::size_t>(i)].begin(), tensors[static_cast<std::size_t>(i)].end(),
                static_cast<float>(world.rank + i));
      const std::vector<int64_t> shape{static_cast<int64_t>(tensors[static_cast<std::size_t>(i)].size())};
      float* data = tensors[static_cast<std::size_t>(i)].data();
      hvd_request q = request(HVD_ALLREDUCE, names[static_cast<std::size_t>(i)].c_str(), shape, data, data);
      q.reduce = HVD_AVERAGE;
      EXPECT(hvd_submit(&q, &handles[static_cast<std::size_t>(i)]) == HVD_OK);
    }
    for (int i = 0; i < count; ++i) {
      EXPECT(hvd_wait(handles[static_cast<std::size_t>(i)], 60) == HVD_OK);
      const float expected = static_cast<float>(i) + static_cast<float>(world.size - 1) / 2;
      EXPECT(tensors[static_cast<std::size_t>(i)].front() == expected &&
             tensors[static_cast<std::size_t>(i)].back() == expected);
      EXPECT(hvd_release(handles[static_cast<std::size_t>(i)]) == HVD_OK);
    }
  }
}

/// One call submits, waits and releases.
void all_at_once() {
  constexpr std::size_t count = 300;
  std::vector<std::string> names;
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) names.push_back("at once." + std::to_string(i));
  std::vector<hvd_handle> handles(count);
  for (int round = 0; round < 4; ++round) {
    const std::vector<int64_t> shape{1};
    std::vector<hvd_request> requests;
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = static_cast<float>(world.rank + round) + static_cast<float>(i);
      requests.push_back(request(HVD_ALLREDUCE, names[i].c_str(), shape, &data[i], &data[i]));
      requests.back().reduce = HVD_AVERAGE;
    }
    EXPECT(hvd_submit_many(requests.data(), count, 0, handles.data()) == HVD_OK);
    EXPECT(hvd_wait_many(handles.data(), count, 60) == HVD_OK);
    bool right = true;
    for (std::size_t i = 0; i < count; ++i)
      right &= data[i] == static_cast<float>(round) + static_cast<float>(i) + static_cast<float>(world.size - 1) / 2;
    EXPECT(right);
    EXPECT(hvd_wait_many(handles.data(), count, 0) == HVD_OK);
    EXPECT(hvd_release_many(handles.data(), count) == HVD_OK);
    EXPECT(hvd_release_many(handles.data(), count) == HVD_USAGE);
    EXPECT(hvd_wait_many(handles.data(), count, 0) == HVD_USAGE);
  }
  EXPECT(hvd_wait_many(nullptr, 0, 0) == HVD_OK && hvd_release_many(nullptr, 0) == HVD_OK);
  EXPECT(hvd_wait_many(nullptr, 1, 0) == HVD_USAGE && hvd_release_many(nullptr, 1) == HVD_USAGE);
}

/// The defaults of a request: no field differs from zero.
void averages_of_bytes() {
  std::uint8_t x = static_cast<std::uint8_t>(3 + world.rank);
  hvd_request q = request(HVD_ALLREDUCE, "a byte", {}, &x, &x);
  q.dtype = HVD_U8;
  q.reduce = HVD_AVERAGE;
  EXPECT(hvd_run(&q) == HVD_OK);
  EXPECT(x == 3 + (world.size - 1) / 2);
}

void notified() {
  constexpr int count = 200;
  static std::atomic<int> told{0};
  const std::vector<int64_t> shape{1};
  const auto ended = [](void* context) {
    static_cast<std::atomic<int>*>(context)->fetch_add(1);
    told.fetch_add(1);
  };
  for (int round = 0; round < 20; ++round) {
    told = 0;
    std::vector<float> data(count, 1.0f);
    std::vector<hvd_handle> handles(count);
    std::vector<std::atomic<int>> times(count);
    for (int i = 0; i < count; ++i) {
      const std::string name = "notified." + std::to_string(i);
      hvd_request q = request(HVD_ALLREDUCE, name.c_str(), shape, &data[static_cast<std::size_t>(i)],
                              &data[static_cast<std::size_t>(i)]);
      EXPECT(hvd_submit(&q, &handles[static_cast<std::size_t>(i)]) == HVD_OK);
      EXPECT(hvd_notify(handles[static_cast<std::size_t>(i)], ended, &times[static_cast<std::size_t>(i)]) == HVD_OK);
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (told < count && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT(told == count);
    for (int i = 0; i < count; ++i) {
      const hvd_handle h = handles[static_cast<std::size_t>(i)];
      EXPECT(times[static_cast<std::size_t>(i)] == 1);
      EXPECT(hvd_wait(h, 0) == HVD_OK);
      EXPECT(hvd_notify(h, ended, &times[static_cast<std::size_t>(i)]) == HVD_OK);  // notified at once
      EXPECT(times[static_cast<std::size_t>(i)] == 2);
      EXPECT(hvd_notify(h, nullptr, nullptr) == HVD_USAGE);
      EXPECT(hvd_release(h) == HVD_OK);
    }
  }
}

void broadcasts() {
  for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{700000}})
    for (int root = 0; root < world.size; ++root) {
      std::vector<float> data(n, static_cast<float>(world.rank));
      const std::vector<int64_t> shape{static_cast<int64_t>(n)};
      hvd_request q = request(HVD_BROADCAST, nullptr, shape, data.data(), data.data());
      q.root = root;
      EXPECT(hvd_run(&q) == HVD_OK);
      for (float x : data)
        if (x != static_cast<float>(root)) {
          EXPECT(x == static_cast<float>(root));
          break;
        }
    }
}

void allgathers() {
  for (std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{50000}})
    for (int round = 0; round < 3; ++round) {
      const std::size_t rows = unit * static_cast<std::size_t>(world.rank + round);
      std::vector<float> in(rows * 3, static_cast<float>(world.rank));
      const std::vector<int64_t> shape{static_cast<int64_t>(rows), 3};
      const std::string name = "gather." + std::to_string(unit);
      hvd_request q = request(HVD_ALLGATHER, name.c_str(), shape, in.data(), nullptr);
      hvd_handle h = 0;
      EXPECT(hvd_submit(&q, &h) == HVD_OK);
      EXPECT(hvd_wait(h, 60) == HVD_OK);
      void* data = nullptr;
      int64_t got[64];
      int32_t ndim = 0;
      EXPECT(hvd_take(h, &data, got, &ndim) == HVD_OK);
      std::size_t total = 0;
      for (int r = 0; r < world.size; ++r) total += unit * static_cast<std::size_t>(r + round);
      EXPECT(ndim == 2 && got[0] == static_cast<int64_t>(total) && got[1] == 3);
      const float* f = static_cast<const float*>(data);
      std::size_t at = 0;
      bool right = true;
      for (int r = 0; r < world.size; ++r)
        for (std::size_t i = 0; i < 3 * unit * static_cast<std::size_t>(r + round); ++i)
          right &= f[at++] == static_cast<float>(r);
      EXPECT(right);
      EXPECT(hvd_take(h, &data, got, &ndim) == HVD_USAGE);
      hvd_free(const_cast<float*>(f));
      EXPECT(hvd_release(h) == HVD_OK);
      EXPECT(hvd_release(h) == HVD_USAGE);
    }
}

void mismatches() {
  if (world.size < 2) return;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> data(20, 1);
    const std::vector<int64_t> shape{world.rank == 1 ? 10 : 20};
    hvd_request q = request(HVD_ALLREDUCE, "odd", shape, data.data(), data.data());
    EXPECT(hvd_run(&q) == HVD_MISMATCH);
    const std::string text = hvd_last_error();
    EXPECT(text.find("odd") != std::string::npos && text.find("[10] on rank 1") != std::string::npos &&
           text.find("[20]") != std::string::npos);
    const std::vector<int64_t> same{20};
    hvd_request ok = request(HVD_ALLREDUCE, "odd", same, data.data(), data.data());
    EXPECT(hvd_run(&ok) == HVD_OK);
    EXPECT(hvd_run(&ok) == HVD_OK);
  }
}

void submitted_and_awaited() {
  const std::vector<int64_t> shape{1};
  const float x = value(world.rank, 0);
  hvd_request q = request(HVD_ALLGATHER, "in one call", shape, &x, nullptr);
  const hvd_request barrier = request(HVD_BARRIER, nullptr, {}, nullptr, nullptr);
  hvd_handle h = 0;
  for (int i = 0; i < 100; ++i) {
    void* data = nullptr;
    int64_t dims[1] = {0};
    int32_t ndim = 0;
    EXPECT(hvd_submit_and_wait(&q, 60, &h) == HVD_OK && hvd_take(h, &data, dims, &ndim) == HVD_OK);
    EXPECT(ndim == 1 && dims[0] == world.size && static_cast<float*>(data)[world.size - 1] == value(world.size - 1, 0));
    hvd_free(data);
    EXPECT(hvd_release(h) == HVD_OK);
  }
  q.name = "late";
  if (world.rank != 0) EXPECT(hvd_run(&barrier) == HVD_OK);
  const bool is_alone = world.rank == 0 && world.size > 1;
  EXPECT(hvd_submit_and_wait(&q, is_alone ? 0.01 : 60, &h) == (is_alone ? HVD_TIMEOUT : HVD_OK));
  if (world.rank == 0) EXPECT(hvd_run(&barrier) == HVD_OK);
  EXPECT(hvd_wait(h, 60) == HVD_OK && hvd_release(h) == HVD_OK);
  q.dtype = 99;
  EXPECT(hvd_submit_and_wait(&q, 60, &h) == HVD_USAGE && h == 0);
  EXPECT(hvd_submit_and_wait(&barrier, std::nan(""), &h) == HVD_USAGE && h == 0);
}

/// Handles are invalid after a shutdown, also when the next world has as many operations.
void stale_handles() {
  static std::vector<hvd_handle> old;
  for (hvd_handle h : old) {
    int done = 0;
    EXPECT(hvd_poll(h, &done) == HVD_USAGE);
    EXPECT(hvd_release(h) == HVD_USAGE);
  }
  old.clear();
  for (int i = 0; i < 10; ++i) {
    hvd_request q = request(HVD_BARRIER, nullptr, {}, nullptr, nullptr);
    hvd_handle h = 0;
    EXPECT(hvd_submit(&q, &h) == HVD_OK && hvd_wait(h, 60) == HVD_OK);
    EXPECT(hvd_wait(h, std::nan("")) == HVD_USAGE);
    old.push_back(h);
  }
}

/// A thread that waits while another one shuts the runtime down gets an error.
void shutdown_while_waiting() {
  hvd_request q = request(HVD_BARRIER, world.rank == 0 ? "only rank 0's" : "only the others'", {}, nullptr, nullptr);
  hvd_handle h = 0;
  if (hvd_submit(&q, &h) != HVD_OK) {  // another thread was faster
    EXPECT(world.size > 1 && hvd_shutdown() == HVD_OK);
    return;
  }
  std::thread waits([&] {
    const int status = hvd_wait(h, 60);
    EXPECT(status == HVD_PEER_LOST || status == HVD_USAGE || (world.size == 1 && status == HVD_OK));
  });
  EXPECT(hvd_shutdown() == HVD_OK);
  waits.join();
}

void barriers() {
  for (int i = 0; i < 100; ++i) {
    hvd_request q = request(HVD_BARRIER, nullptr, {}, nullptr, nullptr);
    EXPECT(hvd_run(&q) == HVD_OK);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int times = argc > 1 ? std::atoi(argv[1]) : 3;
  alarm(static_cast<unsigned>(argc > 2 ? std::atoi(argv[2]) : 120));  // never hang
  EXPECT(hvd_get_world(&world) == HVD_USAGE);
  constexpr std::size_t kept_elements = 700000;
  void* kept = nullptr;
  EXPECT(hvd_alloc(kept_elements * sizeof(float), &kept) == HVD_OK);  // before init, used in every life
  for (int i = 0; i < times; ++i) {
    EXPECT(hvd_init(nullptr) == HVD_OK);
    if (!hvd_is_initialized()) return 1;
    EXPECT(hvd_get_world(&world) == HVD_OK);
    if (i < 3) {
      allreduce_sizes();
      many();
      notified();
      all_at_once();
      averages_of_bytes();
      registered(static_cast<float*>(kept), kept_elements);
      broadcasts();
      allgathers();
      submitted_and_awaited();
      mismatches();
    }
    barriers();
    stale_handles();
    shutdown_while_waiting();
    EXPECT(!hvd_is_initialized());
  }
  EXPECT(*static_cast<float*>(kept) > 0);  // and it is still there
  hvd_free(kept);
  if (failures == 0 && world.rank == 0) std::printf("ok: %d ranks\n", world.size);
  return failures ? 1 : 0;
}
