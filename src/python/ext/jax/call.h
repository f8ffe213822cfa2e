/// @file call.h — one execution of one of our operations in a compiled program: buffers in, an operation of libhvd for
/// each, buffers out.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "../bridge/completion.h"
#include "../bridge/runtime.h"
#include "xla_ffi.h"

namespace hvd::jax {

/// What is the same in all executions; written by hvd/jax/_primitive.py as one line of text.
struct ProgramOperation {
  int kind = HVD_ALLREDUCE;
  std::int32_t reduce = HVD_SUM, root = 0, set = HVD_GLOBAL_SET;
  bool group = false;  ///< the tensors become ready, and run, together
  double prescale = 1, postscale = 1;
  std::string name;
};

/// "kind reduce root set group prescale postscale name": integers, doubles in hexadecimal, the rest of the line.
bool parse(XlaText text, ProgramOperation* spec);

/// The functions of the XLA that runs this call.
class XlaInterface {
 public:
  explicit XlaInterface(const void* api) : api_(static_cast<const char*>(api)) {}
  XlaError* error(int hvd_status, const std::string& text) const;
  bool has_futures() const;
  XlaFuture* future() const;
  void available(XlaFuture* future) const;
  void failed(XlaFuture* future, XlaError* error) const;
  /// The stream that the program runs on; nullptr when XLA does not tell.
  void* stream(void* context) const;

 private:
  template <class Arguments>
  XlaError* call(std::int32_t offset, Arguments* arguments) const;
  const char* api_;
};

/// Set once, before the handler is registered.
extern XlaLayout layout;

/// Deleted by whoever ends it: start() where it has waited, or a completion thread.
class XlaCall final : public bridge::Completion {
 public:
  XlaCall(ProgramOperation spec, const XlaCallFrame* frame);
  /// Where the buffers are.
  enum class Memory { host, cuda };
  /// Submits.  On a GPU it returns when the results are on their way on the program's stream, which comes after them;
  /// the device is not waited for.  On the host, with futures, it returns at once, with the future in *future and the
  /// call living on; without, it returns when the operations have ended.  What it returns is the failure, or null.
  static XlaError* start(ProgramOperation spec, const XlaCallFrame* frame, Memory memory, XlaFuture** future);
  void finish() override;

 private:
  struct CallBuffer {
    const XlaBuffer* in = nullptr;
    const XlaBuffer* out = nullptr;
    std::vector<std::int64_t> shape;  ///< as libhvd is told
    std::string name;
    int dtype = HVD_U8;
    bool as_bytes = false;
    hvd_handle handle = 0;
  };
  bool prepare(const XlaCallFrame* frame);
  bool find_gpu(const XlaCallFrame* frame);
  bool submit();
  bool ended_soon() const;
  void await_later();
  void collect(CallBuffer& part);
  void gpu_copy(const CallBuffer& part, const void* from, std::size_t bytes);
  void fail(int status, const std::string& text);
  void one_ended();
  XlaError* outcome();

  const ProgramOperation spec_;
  const XlaInterface xla_;
  std::vector<CallBuffer> parts_;
  std::int32_t device_ = HVD_HOST_DEVICE;
  void* stream_ = nullptr;  ///< of the program, on a GPU
  std::atomic<int> under_way_{0};
  XlaFuture* future_ = nullptr;
  int failed_ = HVD_OK;
  std::string why_;
};

}  // namespace hvd::jax
