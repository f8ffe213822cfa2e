/// @file fake_device.h — GPUs for the engine's device interface (gpu/device.h) without CUDA: "device memory" is
/// ordinary memory.
#pragma once
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/device.h"

namespace hvd::testing {

/// The settings and the counters of a test, for one rank.
struct FakeDeviceScript {
  bool among_gpus = true;              ///< false: all tensors go through host memory
  bool captured = false;               ///< the callers' streams are being captured
  std::atomic<bool> finished{true};    ///< the queued work is done on the device
  std::atomic<bool> broken{false};     ///< the engine's next poll of the device throws
  std::atomic<int> submitted{0};       ///< tensors that travelled among the GPUs
  std::atomic<int> staged{0};          ///< tensors that went to host memory
  std::atomic<int> given_back{0};      ///< and back
  std::atomic<int> steps_to_queue{3};  ///< steps that a submission takes
};

struct FakeCompletion final : gpu::DeviceCompletion {
  explicit FakeCompletion(FakeDeviceScript& script) : script_(script) {}
  void hold(gpu::StreamHandle, gpu::StreamId) const override {
    if (status.load()) throw Error(static_cast<Code>(status.load()), "", text);
  }
  bool arrived() const override { return status.load() != 0 || script_.finished.load(); }
  std::atomic<int> status{0};
  std::string text;

 private:
  FakeDeviceScript& script_;
};

class FakeGpu final : public gpu::LocalGpu {
 public:
  FakeGpu(int number, const FakeDeviceScript& script) : number_(number), script_(script) {}
  int ordinal() const override { return number_; }
  std::shared_ptr<gpu::StreamMark> mark_caller(gpu::StreamHandle) override {
    return script_.captured ? nullptr : std::make_shared<gpu::StreamMark>();
  }
  void lend_result(void*, gpu::StreamHandle) override {}
  bool free_result(void* result) override {
    std::free(result);
    return true;
  }

 private:
  const int number_;
  const FakeDeviceScript& script_;
};

/// An operation among its GPUs is a copy, as in a set of one rank.
class FakeDevice final : public gpu::SetDevice {
 public:
  FakeDevice(gpu::SetContext context, FakeDeviceScript& script) : context_(std::move(context)), script_(script) {}
  void begin_agreement(gpu::LocalGpu*) override { agreement_ = context_.exchange(&word_, sizeof word_); }
  bool step_agreement() override {
    if (!agreement_->done()) return agreement_->step();
    std::free(agreement_->take().front().result);
    agreement_.reset();
    facts_.among_gpus = script_.among_gpus;
    agreed_ = true;
    return true;
  }
  bool agreed() const override { return agreed_; }
  const gpu::DeviceFacts& facts() const override { return facts_; }

  bool joins() const override { return false; }
  void submit(std::vector<gpu::DeviceTensor> tensors, std::uint32_t) override {
    script_.submitted += static_cast<int>(tensors.size());
    tensors_ = std::move(tensors);
    left_ = script_.steps_to_queue;
  }
  bool step() override { return left_-- > 0; }
  bool done() const override { return left_ <= 0; }
  Result finish() override {
    for (gpu::DeviceTensor& t : tensors_) {
      if (t.kind == Kind::allgather) {
        t.received = {t.rows};
        t.result = reinterpret_cast<gpu::DeviceAddress>(std::malloc(t.bytes()));
      }
      void* to = t.result ? reinterpret_cast<void*>(t.result) : t.out;
      if (to != t.in) std::memcpy(to, t.in, t.bytes());
    }
    return {std::move(tensors_), queue()};
  }

  void* stage(const gpu::DeviceTensor& t) override {
    ++script_.staged;
    void* pinned = std::malloc(t.bytes());
    std::memcpy(pinned, t.in, t.bytes());
    return pinned;
  }
  bool staged() const override { return true; }
  std::shared_ptr<gpu::DeviceCompletion> give_back(gpu::DeviceTensor& t, void* pinned,
                                                   std::span<const std::byte> result) override {
    ++script_.given_back;
    if (t.out) {
      std::memcpy(t.out, pinned, t.bytes());
    } else if (result.data()) {
      t.result = reinterpret_cast<gpu::DeviceAddress>(std::malloc(result.size()));
      std::memcpy(reinterpret_cast<void*>(t.result), result.data(), result.size());
    }
    std::free(pinned);
    return queue();
  }

  bool running() const override { return !ends_.empty() && !script_.finished; }
  bool watch() override {
    if (script_.broken) throw Error(Code::peer_lost, "", "rank 1 is gone");
    if (ends_.empty() || !script_.finished) return false;
    ends_.clear();
    return true;
  }
  void fail(int code, const std::string& text) override {
    for (const auto& end : ends_) {
      end->text = text;
      end->status = code;
    }
    ends_.clear();
  }
  bool splits() const override { return false; }
  std::unique_ptr<gpu::DeviceShare> share() override { return nullptr; }
  bool quiet() override { return true; }
  std::unique_ptr<gpu::DeviceInheritance> split(int, int, int, std::unique_ptr<gpu::DeviceShare>) override {
    return nullptr;
  }

 private:
  std::shared_ptr<FakeCompletion> queue() {
    ends_.push_back(std::make_shared<FakeCompletion>(script_));
    context_.busy = true;
    return ends_.back();
  }
  const gpu::SetContext context_;
  FakeDeviceScript& script_;
  std::unique_ptr<ops::Movement> agreement_;
  std::int64_t word_ = 0;
  gpu::DeviceFacts facts_;
  bool agreed_ = false;
  int left_ = 0;
  std::vector<gpu::DeviceTensor> tensors_;
  std::vector<std::shared_ptr<FakeCompletion>> ends_;
};

/// Two GPUs.
class FakePlatform final : public gpu::Platform {
 public:
  FakeDeviceScript script;
  gpu::LocalGpu& at(int ordinal) override {
    if (ordinal > 1) throw Error(Code::usage, "cuda:" + std::to_string(ordinal), "this process sees 2 GPUs");
    return gpus_[static_cast<std::size_t>(ordinal)];
  }
  std::unique_ptr<gpu::SetDevice> open(gpu::SetContext context, std::unique_ptr<gpu::DeviceInheritance>) override {
    return std::make_unique<FakeDevice>(std::move(context), script);
  }
  bool free_result(void*) override { return false; }
  void* take_registered(int, std::size_t) override { throw Error(Code::unavailable, "hvd_gpu_alloc", "no NCCL"); }
  void give_back_registered(void*, int, gpu::StreamHandle) override {}
  int version(std::string_view) const override { return 0; }
  bool use_torch_memory(std::string&) override { return false; }
  void allow_torch_memory(bool) override {}

 private:
  std::array<FakeGpu, 2> gpus_{FakeGpu(0, script), FakeGpu(1, script)};
};

}  // namespace hvd::testing
