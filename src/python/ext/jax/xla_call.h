/// @file xla_call.h — one execution of an operation of hvd.jax in a program that XLA has compiled.
#pragma once
#include <string>
#include <vector>

#include "../bridge/call.h"
#include "xla_ffi.h"

namespace hvd::jax {

/// "kind reduce root set group prescale postscale name", in the format of hvd/jax/_primitive.py: integers, doubles, the
/// rest of the line.
bool parse(XlaText text, bridge::CallOperation* operation);

/// The functions of the XLA that runs this call.
class XlaInterface {
 public:
  explicit XlaInterface(const void* api) : api_(static_cast<const char*>(api)) {}
  XlaError* error(int hvd_status, const std::string& text) const;
  bool has_futures() const;
  XlaFuture* future() const;
  void available(XlaFuture* future) const;
  void failed(XlaFuture* future, XlaError* error) const;
  /// The stream on which the program runs; nullptr if XLA does not report it.
  void* stream(void* context) const;

 private:
  template <class Arguments>
  XlaError* call(std::int32_t offset, Arguments* arguments) const;
  const char* api_;
};

/// Set once, before the handler is registered.
extern XlaLayout layout;

/// Deleted by start() if that has waited, or by a completion thread.
class XlaCall final : public bridge::Call {
 public:
  XlaCall(bridge::CallOperation operation, const XlaCallFrame* frame);
  /// Where the buffers are.
  enum class Memory { host, cuda };
  /// Submits, and returns the failure, or null. On a GPU it returns when the results are queued on the program's
  /// stream, without a wait for the device. On the host, with futures, it returns at once, with the future in *future,
  /// and the call lives on. Without futures it returns when the operations have ended.
  static XlaError* start(bridge::CallOperation operation, const XlaCallFrame* frame, Memory memory, XlaFuture** future);
  void finish() override;

 private:
  bool prepare(const XlaCallFrame* frame);
  bool find_gpu(const XlaCallFrame* frame);
  bool ended_soon() const;
  void collect(std::size_t output);
  XlaError* outcome();

  const XlaInterface xla_;
  std::vector<const XlaBuffer*> outs_;
  std::int32_t device_ = HVD_HOST_DEVICE;
  void* stream_ = nullptr;  ///< of the program, on a GPU
  XlaFuture* future_ = nullptr;
};

}  // namespace hvd::jax
