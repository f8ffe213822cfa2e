/// @file gpu_kernels.h — tensors that TensorFlow leaves on a GPU: whether the kernels take them, and the GPU's number.
///
/// TensorFlow's C interface gives a kernel its stream on pluggable devices only (TF_GetStream). The kernels do not need
/// it. When TensorFlow runs a kernel's compute function, the device's streams already have the work that makes the
/// inputs. The streams also have the work that may still read the memory of the outputs. So libhvd begins after all
/// work that the context has then (HVD_WHOLE_CONTEXT). An asynchronous kernel reports its end only when the device has
/// finished. So later work of TensorFlow on its stream comes after the kernel.
#pragma once
#include <string>

namespace hvd::tensorflow {

/// Returns true if HVD_TENSORFLOW_GPU requests kernels on the GPU.
bool gpu_wanted();
/// Finds the requirements of the kernels: asynchronous kernels in TensorFlow's C interface (2.13), a CUDA driver for
/// 12.5. Returns "" or the missing one. Called after find_tensorflow().
std::string find_gpu();
/// TensorFlow's name for the device: "GPU"; HVD_TENSORFLOW_DEVICE_TYPE for tests without one.
std::string gpu_type();
/// The GPU whose memory lies at @p data; -1: none.  For an empty tensor (nullptr): the GPU that this process has used,
/// else the GPU of the current context.  While TensorFlow runs a kernel on a GPU, that context is the GPU's. Any
/// thread.
int gpu_of(const void* data);

}  // namespace hvd::tensorflow
