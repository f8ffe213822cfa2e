/// @file attributes.h — a kernel's attributes, read while TensorFlow makes the kernel.
///
/// Each function sets @p status when it fails, and reads nothing when @p status is an error already.  So the caller
/// looks at the status once, after the last attribute.
#pragma once
#include <cstdint>
#include <string>

#include "tf_api.h"

namespace hvd::tensorflow {

std::int64_t integer(TF_OpKernelConstruction* context, const char* name, TF_Status* status);
/// Fails if the number is too large: truncated, it would name another rank or another process set.
std::int32_t small_integer(TF_OpKernelConstruction* context, const char* name, TF_Status* status);
bool boolean(TF_OpKernelConstruction* context, const char* name, TF_Status* status);
std::string text(TF_OpKernelConstruction* context, const char* name, TF_Status* status);
/// The op API's floats have 32 bits; factors travel as the 64 bits of a double.
double real(TF_OpKernelConstruction* context, const char* name, TF_Status* status);

}  // namespace hvd::tensorflow
