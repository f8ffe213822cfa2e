/// @file gpu_kernels.h — tensors that TensorFlow leaves on a GPU: whether our kernels take them, and which GPU it is.
///
/// TensorFlow's C interface gives a kernel its stream on pluggable devices only (TF_GetStream).  It is not needed. When
/// TensorFlow runs a kernel's compute function it has put on the device's streams what makes the inputs, and what may
/// still read the memory that it gives us for outputs; so libhvd begins behind all that the context has been given by
/// then (HVD_WHOLE_CONTEXT).  And an asynchronous kernel tells of its end only when the device is through with it: what
/// TensorFlow puts on its stream afterwards comes later by itself.
#pragma once
#include <string>

namespace hvd::tensorflow {

/// HVD_TENSORFLOW_GPU asks for kernels on the GPU.
bool gpu_wanted();
/// Finds what they need: asynchronous kernels in TensorFlow's C interface (2.13), a CUDA driver for 12.5.  "" or what
/// is missing.  After find_tensorflow().
std::string find_gpu();
/// TensorFlow's name for the device: "GPU"; HVD_TENSORFLOW_DEVICE_TYPE for tests without one.
std::string gpu_type();
/// The GPU whose memory lies at @p data; -1: no GPU's.  Of an empty tensor (nullptr) the one that this
/// process has used, else that whose context is current: while TensorFlow runs a kernel of its GPUs, theirs.
/// Any thread.
int gpu_of(const void* data);

}  // namespace hvd::tensorflow
