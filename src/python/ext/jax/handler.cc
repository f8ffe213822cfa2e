/// @file handler.cc — the handlers that XLA calls for all operations of hvd.jax, one for each platform.  Also the
/// functions for hvd/jax/_library.py.
#include <string>

#include "xla_call.h"

namespace hvd::jax {
namespace {

/// XLA asks a handler once for its version of the interface. The answer is XLA's own, since the layout is read from its
/// header.
bool answer_metadata(const XlaCallFrame* frame) {
  if (!layout.metadata) return false;
  for (XlaExtension* extension = frame->extension_start; extension; extension = extension->next) {
    if (extension->type != xla_extension_metadata) continue;
    XlaMetadata* metadata = reinterpret_cast<XlaMetadataExtension*>(extension)->metadata;
    metadata->api_version.major_version = layout.major;
    metadata->api_version.minor_version = layout.minor;
    return true;
  }
  return false;
}

XlaError* handle(XlaCallFrame* frame, XlaCall::Memory memory) {
  if (answer_metadata(frame)) return nullptr;
  bridge::CallOperation operation;
  bool known = false;
  for (std::int64_t i = 0; i < frame->attributes.size; ++i) {
    const XlaText& name = *frame->attributes.names[i];
    if (frame->attributes.types[i] == xla_attribute_string && std::string(name.data, name.length) == "operation")
      known = parse(*static_cast<const XlaText*>(frame->attributes.values[i]), &operation);
  }
  if (!known) return XlaInterface(frame->api).error(HVD_INTERNAL, "a call of hvd's without its operation");
  return XlaCall::start(std::move(operation), frame, memory, layout.future_create ? &frame->future : nullptr);
}

}  // namespace
}  // namespace hvd::jax

extern "C" {

/// XLA_FFI_Handler.
__attribute__((visibility("default"))) void* hvd_jax_handler(void* frame) {
  return hvd::jax::handle(static_cast<hvd::jax::XlaCallFrame*>(frame), hvd::jax::XlaCall::Memory::host);
}

/// XLA_FFI_Handler of the platform CUDA.
__attribute__((visibility("default"))) void* hvd_jax_cuda_handler(void* frame) {
  return hvd::jax::handle(static_cast<hvd::jax::XlaCallFrame*>(frame), hvd::jax::XlaCall::Memory::cuda);
}

/// Prepares the handler, before it is registered. Returns "" or the error.
__attribute__((visibility("default"))) const char* hvd_jax_configure(const hvd::jax::XlaLayout* layout) {
  static std::string* const problem = new std::string;
  hvd::jax::layout = *layout;
  *problem = hvd::bridge::find_runtime();
  return problem->c_str();
}

__attribute__((visibility("default"))) void hvd_jax_exiting() { hvd::bridge::stop_completions(); }
}
