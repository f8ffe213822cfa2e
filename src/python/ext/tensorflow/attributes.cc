#include "attributes.h"

#include <cstring>
#include <utility>

#include "kernel_call.h"

namespace hvd::tensorflow {

std::int64_t integer(TF_OpKernelConstruction* context, const char* name, TF_Status* status) {
  std::int64_t value = 0;
  if (tf.GetCode(status) == tf_ok) tf.OpKernelConstruction_GetAttrInt64(context, name, &value, status);
  return value;
}

std::int32_t small_integer(TF_OpKernelConstruction* context, const char* name, TF_Status* status) {
  const std::int64_t value = integer(context, name, status);
  if (!std::in_range<std::int32_t>(value))
    tf.SetStatus(status, bridge::canonical_code(HVD_USAGE),
                 (std::string(name) + " is " + std::to_string(value) + ": it must fit into 32 bits").c_str());
  return static_cast<std::int32_t>(value);
}

bool boolean(TF_OpKernelConstruction* context, const char* name, TF_Status* status) {
  unsigned char value = 0;
  if (tf.GetCode(status) == tf_ok) tf.OpKernelConstruction_GetAttrBool(context, name, &value, status);
  return value != 0;
}

std::string text(TF_OpKernelConstruction* context, const char* name, TF_Status* status) {
  std::int32_t length = -1, total = 0;
  if (tf.GetCode(status) == tf_ok) tf.OpKernelConstruction_GetAttrSize(context, name, &length, &total, status);
  std::string value(static_cast<std::size_t>(total > 0 ? total : 0), '\0');
  if (tf.GetCode(status) == tf_ok && !value.empty())
    tf.OpKernelConstruction_GetAttrString(context, name, value.data(), value.size(), status);
  return value;
}

double real(TF_OpKernelConstruction* context, const char* name, TF_Status* status) {
  const std::int64_t bits = integer(context, name, status);
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace hvd::tensorflow
