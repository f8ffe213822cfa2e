#include "rank/diagnostics/death/gpu_death.h"

#include <doctest/doctest.h>

using namespace hvd::rank;

namespace {

const GpuFacts shared{8ll << 30,
                      1ll << 30,
                      {{77, "python3", true, 2ll << 30}, {88, "notebook", false, 5ll << 30}, {99, "", false, 0}},
                      {},
                      0};
const GpuFacts alone{8ll << 30, 1ll << 30, {{77, "python3", true, 2ll << 30}}, {}, 0};

std::string text(const std::string& words, const GpuFacts& facts = {}) { return out_of_gpu_memory(words, facts).text; }

}  // namespace

TEST_CASE("GPU death: memory that ran out, in each framework's words") {
  CHECK(text("Traceback (most recent call last):\n  File \"x.py\", line 1\n"
             "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
             "79.11 GiB of which 3.00 GiB is free. Process 88 has 36.00 GiB memory in use. Including non-PyTorch "
             "memory, this process has 40.11 GiB memory in use. Of the allocated memory 39.00 GiB is allocated",
             shared) ==
        "its GPU's memory ran out: it asked for 20.00 GiB when 3.00 GiB of 79.11 GiB were free; it held 40.11 GiB; so "
        "did notebook (pid 88) 5.0 GiB, a process not seen from here (pid 99)");
  CHECK(text("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
             alone) ==
        "its GPU's memory ran out: it asked for 8.0 GiB when 1.0 GiB of 8.0 GiB were free; it held 2.0 GiB");
  CHECK(text("hvd: no device memory for 4 MiB (64 of 1024 MiB are free): out of memory", alone) ==
        "its GPU's memory ran out: it asked for 4 MiB when 64 of 1024 MiB were free; it held 2.0 GiB");
  CHECK(text("OOM when allocating tensor with shape[9] on /job:localhost/replica:0/task:0/device:GPU:0 by GPU_0_bfc") ==
        "its GPU's memory ran out");
  CHECK(text("terminate called\n  what():  CUDA error: out of memory\n", alone) ==
        "its GPU's memory ran out: 1.0 GiB of 8.0 GiB were free; it held 2.0 GiB");
  // Other text among libhvd's is not repeated.
  CHECK(text("hvd: no device memory for 4 MiB (64\nof 1024 MiB are free): out of memory", alone) ==
        "its GPU's memory ran out: it asked for 4 MiB when 1.0 GiB of 8.0 GiB were free; it held 2.0 GiB");
  // The last message counts.
  CHECK(text("CUDA out of memory. Tried to allocate 1.00 GiB.\nCUDA out of memory. Tried to allocate 2.00 MiB.") ==
        "its GPU's memory ran out: it asked for 2.00 MiB");
  for (const char* other : {"", "MemoryError", "OOM when allocating tensor on /device:CPU:0", "out of memory",
                            "Tried to allocate 20.00 GiB"})
    CHECK(text(other, shared).empty());
}

TEST_CASE("GPU death: who else was there decides what to do") {
  const std::string words = "CUDA out of memory. Tried to allocate";
  CHECK(out_of_gpu_memory(words, alone).hint == "use a smaller batch or fewer ranks on this GPU");
  CHECK(out_of_gpu_memory(words, shared).hint ==
        "others use this GPU: end them, use fewer ranks on it, or a smaller batch");
}

TEST_CASE("GPU death: errors of the GPU") {
  CHECK(gpu_errors({}).text.empty());
  GpuFacts facts;
  facts.xids = {79, 79, 999};
  CHECK(gpu_errors(facts).text == "the GPU's driver reports Xid 79 (the GPU has fallen off the bus), Xid 999");
  facts.xids = {48}, facts.lost_words = 1;
  CHECK(gpu_errors(facts).text ==
        "the GPU's driver reports Xid 48 (memory errors that ECC could not correct), 1 memory error that ECC could not "
        "correct");
  CHECK(gpu_errors(facts).hint.find("nvidia-smi") == 0);
}
