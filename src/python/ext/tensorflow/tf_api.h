/// @file tf_api.h — the part of TensorFlow's C op and kernel API that the op library uses.
///
/// The prototypes are declared here, and the functions are looked up in the TensorFlow that the process has loaded. So
/// one binary, built without TensorFlow, serves every version from 2.9 on. Meaning and ownership are those in
/// TensorFlow's own c/ops.h, c/kernels.h and c/tf_tensor.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/dtype_numbers.h"

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_AsyncOpKernelDoneCallback;
}

namespace hvd::tensorflow {

/// TF_DataType, for the supported types: tf_f32 and so on.
#define HVD_TF_ENUMERATOR(enumerator, word, nccl, number, ...) tf_##word = number,
enum TensorFlowType : int { HVD_DTYPE_NUMBERS(HVD_TF_ENUMERATOR) };
#undef HVD_TF_ENUMERATOR

constexpr int tf_ok = 0;  // of TF_Code; the others: hvd::bridge::canonical_code

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);
using CreateFunction = void* (*)(TF_OpKernelConstruction*);
using ComputeFunction = void (*)(void* kernel, TF_OpKernelContext*);
using ComputeAsyncFunction = void (*)(void* kernel, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFunction = void (*)(void* kernel);

// X(result, name without TF_, parameters)
#define HVD_TF_FUNCTIONS(X)                                                                                            \
  X(TF_Status*, NewStatus, ())                                                                                         \
  X(void, DeleteStatus, (TF_Status*))                                                                                  \
  X(void, SetStatus, (TF_Status*, int code, const char* text))                                                         \
  X(int, GetCode, (const TF_Status*))                                                                                  \
  X(const char*, Message, (const TF_Status*))                                                                          \
  X(void, DeleteTensor, (TF_Tensor*))                                                                                  \
  X(int, TensorType, (const TF_Tensor*))                                                                               \
  X(int, NumDims, (const TF_Tensor*))                                                                                  \
  X(std::int64_t, Dim, (const TF_Tensor*, int))                                                                        \
  X(std::size_t, TensorByteSize, (const TF_Tensor*))                                                                   \
  X(std::size_t, DataTypeSize, (int))                                                                                  \
  X(void*, TensorData, (const TF_Tensor*))                                                                             \
  X(TF_OpDefinitionBuilder*, NewOpDefinitionBuilder, (const char* name))                                               \
  X(void, RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                                 \
  X(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                                          \
  X(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                                         \
  X(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                                        \
  X(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                           \
  X(void, OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFunction))                      \
  X(std::int64_t, ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                         \
  X(TF_ShapeHandle*, NewShapeHandle, ())                                                                               \
  X(void, DeleteShapeHandle, (TF_ShapeHandle*))                                                                        \
  X(void, ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))                \
  X(void, ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))               \
  X(void, ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                               \
  X(TF_ShapeHandle*, ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                                         \
  X(TF_ShapeHandle*, ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, std::size_t))                    \
  X(int, ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                                 \
  X(std::int64_t, ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                             \
  X(void, ShapeInferenceContextSubshape,                                                                               \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, std::int64_t, std::int64_t, TF_ShapeHandle*, TF_Status*))             \
  X(void, ShapeInferenceContextConcatenateShapes,                                                                      \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))                        \
  X(TF_KernelBuilder*, NewKernelBuilder,                                                                               \
    (const char* op, const char* device, CreateFunction, ComputeFunction, DeleteFunction))                             \
  X(TF_KernelBuilder*, NewAsyncKernelBuilder,                                                                          \
    (const char* op, const char* device, CreateFunction, ComputeAsyncFunction, DeleteFunction))                        \
  X(void, KernelBuilder_TypeConstraint, (TF_KernelBuilder*, const char* attribute, int type, TF_Status*))              \
  X(void, RegisterKernelBuilder, (const char* kernel, TF_KernelBuilder*, TF_Status*))                                  \
  X(void, OpKernelConstruction_GetAttrSize,                                                                            \
    (TF_OpKernelConstruction*, const char*, std::int32_t*, std::int32_t*, TF_Status*))                                 \
  X(void, OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*))       \
  X(void, OpKernelConstruction_GetAttrBool, (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))       \
  X(void, OpKernelConstruction_GetAttrString, (TF_OpKernelConstruction*, const char*, char*, std::size_t, TF_Status*)) \
  X(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                                        \
  X(int, NumInputs, (TF_OpKernelContext*))                                                                             \
  X(void, GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                               \
  X(TF_Tensor*, AllocateOutput,                                                                                        \
    (TF_OpKernelContext*, int, int type, const std::int64_t* dims, int ndim, std::size_t bytes, TF_Status*))           \
  X(TF_Tensor*, ForwardInputOrAllocateOutput,                                                                          \
    (TF_OpKernelContext*, const int* inputs, int count, int output, const std::int64_t* dims, int ndim, int* which,    \
     TF_Status*))                                                                                                      \
  X(void, OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))

struct TensorFlowFunctions {
#define HVD_TF_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  HVD_TF_FUNCTIONS(HVD_TF_MEMBER)
#undef HVD_TF_MEMBER
};
extern TensorFlowFunctions tf;

/// Fills in tf; NewAsyncKernelBuilder stays null before TensorFlow 2.13, approximately. Returns "" or the error.
std::string find_tensorflow();

/// A TF_Status that frees itself.
class OwnedStatus {
 public:
  OwnedStatus() : status_(tf.NewStatus()) {}
  ~OwnedStatus() { tf.DeleteStatus(status_); }
  OwnedStatus(const OwnedStatus&) = delete;
  OwnedStatus& operator=(const OwnedStatus&) = delete;
  operator TF_Status*() { return status_; }
  bool ok() const { return tf.GetCode(status_) == tf_ok; }
  std::string text() const { return tf.Message(status_); }
  void set(int code, const std::string& text) { tf.SetStatus(status_, code, text.c_str()); }

 private:
  TF_Status* status_;
};

/// The callback that must be called once when an asynchronous kernel's outputs are ready.
///
/// TF_AsyncOpKernelDoneCallback is a std::function<void()> on the stack of the kernel's caller, and is destroyed when
/// the kernel's compute function returns. A later TF_RunAsyncOpKernelDoneCallback would use a dangling pointer. So the
/// callback is copied: its layout is libstdc++'s ABI, which TensorFlow's Linux builds and this library share.
using Done = std::function<void()>;
inline Done copy_of(TF_AsyncOpKernelDoneCallback* done) { return *reinterpret_cast<Done*>(done); }

}  // namespace hvd::tensorflow
