/// Tensors on (fake) GPUs under the real runtime, ranks as threads.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "gpu/nccl/communicator/library.h"
#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

extern "C" void fake_cuda_flip(void* byte);
extern "C" int fake_cuda_copies_to_host();

TEST_CASE("every operation, through NCCL") {
  for (int ranks : {1, 2, 4}) run_world(ranks, ranks, all_operations);
}

/// Uses the driver and NCCL in an exit handler. The handler is registered before the first GPU tensor, so it runs after
/// later objects are destroyed. The driver's table must still exist then; a sanitizer reports a table that was
/// destroyed.
[[maybe_unused]] const bool asks_at_exit = [] {
  return std::atexit([] {
           if (const cuda::Driver* driver = cuda::Driver::get()) driver->text(2);
           if (const nccl::Library* library = nccl::Library::get()) library->text(2, nullptr);
         }) == 0;
}();

TEST_CASE("every operation, on several nodes") { run_world(4, 2, all_operations); }

TEST_CASE("every operation, through host memory") {
  core::Config config;
  send_through_host(config, nccl::gpu_kinds);
  for (int ranks : {1, 3}) run_world(ranks, ranks, all_operations, config);
  run_world(4, 2, all_operations, config);
}

TEST_CASE("some operations through host memory, the others through NCCL") {
  core::Config config;
  send_through_host(config, bit_of(Kind::allreduce) | bit_of(Kind::alltoall));
  run_world(3, 3, all_operations, config);
}

TEST_CASE("sums of 16-bit floats, also in f32") {
  for (const bool wide : {false, true}) {
    core::Config config;
    config.set("HVD_NCCL_WIDE", wide);
    run_world(
        3, 3,
        [](Rank& rank) {
          GpuRank gpu(rank);
          for (hvd_dtype dtype : {HVD_F16, HVD_BF16}) {
            std::vector<std::uint16_t> v(300);
            for (std::size_t i = 0; i < v.size(); ++i) {
              const auto x = static_cast<float>(i % 50) + static_cast<float>(rank.rank());
              hvd::f16 h;
              hvd::bf16 b;
              hvd::narrow(x, h), hvd::narrow(x, b);
              v[i] = dtype == HVD_F16 ? h.bits : b.bits;
            }
            void* t = gpu.tensor(v.data(), 600);
            const std::string name = "half" + std::to_string(dtype);
            gpu.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {300}, t, t, dtype, HVD_AVERAGE));
            for (std::size_t i = 0; i < v.size(); ++i) {
              const auto bits = static_cast<std::uint16_t*>(t)[i];
              const float y = dtype == HVD_F16 ? hvd::wide(hvd::f16{bits}) : hvd::wide(hvd::bf16{bits});
              EXPECT(std::abs(y - (static_cast<float>(i % 50) + 1)) <= 0.02f * (1 + y));
            }
          }
        },
        config);
  }
}

TEST_CASE("complex numbers are summed by parts, their products go through the host, and unsigned integers are summed") {
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank);
    const float x[] = {1, 2, static_cast<float>(rank.rank()), -1};  // 1+2i, r-i
    void* t = gpu.tensor(x, sizeof x);
    gpu.run(Rank::request(HVD_ALLREDUCE, "sum", {2}, t, t, HVD_C64, HVD_AVERAGE));
    EXPECT((read(t, 4) == std::vector<float>{1, 2, 1, -1}));
    t = gpu.tensor(x, sizeof x);
    gpu.run(Rank::request(HVD_ALLREDUCE, "product", {2}, t, t, HVD_C64, HVD_PRODUCT));
    EXPECT((read(t, 4) == std::vector<float>{-11, -2, -3, -1}));  // (1+2i)^3; -i (1-i) (2-i)
    const std::uint32_t n[] = {4000000000u, 1};
    t = gpu.tensor(n, sizeof n);
    gpu.run(Rank::request(HVD_ALLREDUCE, "max", {2}, t, t, HVD_U32, HVD_MAX));
    EXPECT((std::memcmp(t, n, sizeof n) == 0));
  });
}

TEST_CASE("CPU here and GPU there is a disagreement with a name, and the next operation works") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const auto v = floats(8, rank.rank());
    void* t = gpu.tensor(v.data(), 32, 0);
    cuStreamSynchronize(gpu.stream());
    hvd_request q = Rank::request(HVD_ALLREDUCE, "where", {8}, t, t);
    if (rank.rank() == 1) q = gpu.on_gpu(q);
    std::string text;
    EXPECT(rank.try_run(q, &text, 60) == HVD_MISMATCH);
    EXPECT(text.find("ranks disagree on device: cpu on rank 0, cuda on rank 1") != std::string::npos);
    gpu.run(Rank::request(HVD_ALLREDUCE, "where", {8}, t, t));
    EXPECT(read(t, 8) == sum_of_floats(8, 2));
  });
}

TEST_CASE("one GPU for each rank") {
  run_world(1, 1, [](Rank& rank) {
    GpuRank first(rank, 0), second(rank, 1);
    float one = 1;
    first.run(Rank::request(HVD_ALLREDUCE, "a", {1}, &one, &one));
    std::string text;
    EXPECT(rank.try_run(second.on_gpu(Rank::request(HVD_ALLREDUCE, "b", {1}, &one, &one)), &text, 60) == HVD_USAGE);
    EXPECT(text.find("cuda:1") == 0);
    hvd_request q = Rank::request(HVD_ALLREDUCE, "c", {1}, &one, &one);
    q.device = 99;
    EXPECT(rank.try_run(q, &text, 60) == HVD_USAGE);
    EXPECT(text.find("this process sees 8 GPUs") != std::string::npos);
  });
}

TEST_CASE("a group runs together; process sets have communicators of their own") {
  run_world(4, 4, [](Rank& rank) {
    GpuRank gpu(rank);
    const int even = rank.engine().add_set({0, 2}), odd = rank.engine().add_set({1, 3});
    for (int round = 0; round < 5; ++round) {
      float x = static_cast<float>(rank.rank() + 1), y = x;
      void* a = gpu.tensor(&x, 4);
      void* b = gpu.tensor(&y, 4);
      hvd_request q = Rank::request(HVD_ALLREDUCE, "mine", {1}, a, a);
      q.set = rank.rank() % 2 ? odd : even;
      core::Operation& op = rank.submit(gpu.on_gpu(q));
      gpu.run(Rank::request(HVD_ALLREDUCE, "all", {1}, b, b));
      gpu.arrive(op);
      gpu.release(op);
      EXPECT(*static_cast<float*>(a) == (rank.rank() % 2 ? 6.f : 4.f));
      EXPECT(*static_cast<float*>(b) == 10.f);
    }
    std::vector<void*> tensors;
    std::vector<hvd_request> qs;
    for (int i = 0; i < 20; ++i) {
      const auto v = floats(100, rank.rank(), i);
      tensors.push_back(gpu.tensor(v.data(), 400));
      static thread_local std::deque<std::string> names;
      names.push_back("g" + std::to_string(i));
      qs.push_back(
          gpu.on_gpu(Rank::request(HVD_ALLREDUCE, names.back().c_str(), {100}, tensors.back(), tensors.back())));
    }
    const auto ops = rank.submit_group(qs);
    for (int i = 0; i < 20; ++i) {
      gpu.arrive(*ops[static_cast<std::size_t>(i)]);
      gpu.release(*ops[static_cast<std::size_t>(i)]);
      EXPECT(read(tensors[static_cast<std::size_t>(i)], 100) == sum_of_floats(100, 4, i));
    }
  });
}

TEST_CASE("a rank that has joined stands in with zeros on its GPU") {
  for (const std::uint32_t through_host : {0u, nccl::gpu_kinds}) {
    core::Config config;
    send_through_host(config, through_host);
    run_world(
        3, 3,
        [](Rank& rank) {
          GpuRank gpu(rank);
          if (rank.rank() == 0) {
            EXPECT(rank.run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr)) == HVD_OK);
            return;
          }
          for (int i = 0; i < 4; ++i) {
            const auto v = floats(500, rank.rank(), i);
            void* t = gpu.tensor(v.data(), 2000);
            gpu.run(Rank::request(HVD_ALLREDUCE, "last", {500}, t, t));
            auto sum = floats(500, 1, i);
            const auto other = floats(500, 2, i);
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += other[k];
            EXPECT(read(t, 500) == sum);
            const auto g = gpu.take<float>(Rank::request(HVD_ALLGATHER, "rest", {1}, gpu.tensor(v.data(), 4), nullptr));
            EXPECT(g.size() == 2);
            const auto part =
                gpu.take<float>(Rank::request(HVD_REDUCESCATTER, "part", {6}, gpu.tensor(v.data(), 24), nullptr));
            EXPECT(part[0] == sum[static_cast<std::size_t>(rank.rank()) * 2]);
          }
          EXPECT(rank.run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr)) == HVD_OK);
        },
        config);
  }
}

namespace {

core::Config with_agreement(const char* mode, int steps) {
  core::Config config;
  config.set("HVD_AGREEMENT", mode).set("HVD_AGREEMENT_STEPS", steps);
  return config;
}

/// Runs operations together, again and again, until one fails.  In the fourth round the result of the middle one has a
/// flipped bit on rank 1.  Returns the error; empty: none in @p rounds rounds.
std::string error_after_flip(Rank& rank, GpuRank& gpu, std::vector<hvd_request> group, int rounds) {
  for (hvd_request& q : group) q = gpu.on_gpu(q);
  const hvd_request& middle = group[group.size() / 2];
  try {
    for (int round = 0; round < rounds; ++round) {
      if (round == 3 && rank.rank() == 1) fake_cuda_flip(static_cast<unsigned char*>(middle.out) + 38);
      for (core::Operation* op : rank.submit_group(group)) gpu.arrive(*op), gpu.release(*op);
    }
  } catch (const Error& e) { return e.what(); }
  return "";
}

/// A group of `tensors` operations with `elements` elements each. In round 3 one bit of rank 1's result is flipped.
struct FlippedForm {
  int tensors = 1;
  std::int64_t elements = 20;
  hvd_reduce reduce = HVD_SUM;
  hvd_dtype dtype = HVD_F32;
  hvd_kind kind = HVD_ALLREDUCE;

  std::string error(Rank& rank, int rounds) const {
    static const char* const names[] = {"first", "second", "third"};
    GpuRank gpu(rank);
    const std::vector<float> zeros(static_cast<std::size_t>(elements));
    std::vector<hvd_request> group;
    for (int i = 0; i < tensors; ++i)
      group.push_back(Rank::request(kind, names[i], {elements}, gpu.tensor(zeros.data(), zeros.size() * 4),
                                    gpu.empty(zeros.size() * 4), dtype, reduce));
    return error_after_flip(rank, gpu, group, rounds);
  }
};

const FlippedForm flipped_forms[] = {
    {},
    {.tensors = 3},
    {.tensors = 3, .reduce = HVD_AVERAGE},
    {.tensors = 3, .reduce = HVD_AVERAGE, .dtype = HVD_F16},
    {.elements = 1 << 22, .reduce = HVD_MAX},
    {.kind = HVD_BROADCAST},
};

}  // namespace

TEST_CASE("every operation, and --agreement finds no difference") {
  for (const Split& s : worlds({{2, 2}, {4, 2}, {3, 1}}))
    run_world(s.size, s.per_node, all_operations, with_agreement("stop", 2));
  run_world(
      3, 3,
      [](Rank& rank) {
        GpuRank gpu(rank);
        for (int epoch = 0; epoch < 3; ++epoch) {
          for (int step = 0; step < 2 * rank.rank() + 2; ++step) {
            const auto v = floats(3000, rank.rank(), step);
            void* t = gpu.tensor(v.data(), v.size() * 4);
            gpu.run(Rank::request(HVD_ALLREDUCE, "joined", {3000}, t, t));
          }
          EXPECT(rank.run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr)) == HVD_OK);
        }
      },
      with_agreement("stop", 2));
}

TEST_CASE("--agreement finds a bit that flips in a GPU's memory, in whatever way the result came there") {
  if (!has_kernels()) return;
  for (const FlippedForm& form : flipped_forms)
    for (const Split& s : worlds({{3, 3}, {4, 2}, {3, 1}})) {
      CAPTURE(form.tensors);
      CAPTURE(form.elements);
      CAPTURE(s.per_node);
      core::Config config = with_agreement("stop", 1);
      config.set("HVD_NCCL_WIDE", form.dtype == HVD_F16).set("HOROVOD_HIERARCHICAL_ALLREDUCE", s.size == 4);
      std::vector<std::string> errors(static_cast<std::size_t>(s.size));
      run_world(
          s.size, s.per_node,
          [&](Rank& rank) { errors[static_cast<std::size_t>(rank.rank())] = form.error(rank, 3000); }, config);
      for (const std::string& error : errors) {
        CHECK(error == errors[0]);
        CHECK(error.find(std::string("the result of '") + (form.tensors == 3 ? "second" : "first")) !=
              std::string::npos);
        CHECK(error.find(s.per_node == 2 ? "differs between rank 0 and rank 1," : "is not on rank 1 what") !=
              std::string::npos);
      }
    }
}

TEST_CASE("without --agreement, nothing is hashed or copied to the host") {
  const int copies = fake_cuda_copies_to_host();
  for (const FlippedForm& form : flipped_forms)
    run_world(2, 2, [&](Rank& rank) { EXPECT(form.error(rank, 6).empty()); });
  CHECK(fake_cuda_copies_to_host() == copies);
  fake_cuda_flip(nullptr);
}
