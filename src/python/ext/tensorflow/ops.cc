/// @file ops.cc — the ops' definitions and kernels, registered when tf.load_op_library opens this library.
///
/// All ops are stateful, so TensorFlow does not fold, merge or omit any.  Otherwise ranks would run different
/// operations.  TensorFlow would run stateful ops of a tf.function one after the other; hvd/tensorflow/_library.py
/// prevents that.  Ops with InOrder in their names, for loops, do run so.
#include <cstdio>
#include <memory>
#include <string>

#include "../bridge/libhvd_functions.h"
#include "attributes.h"
#include "gpu_kernels.h"
#include "kernel_call.h"
#include "shape_functions.h"
#include "tf_api.h"
#include "world_op.h"

namespace hvd::tensorflow {
namespace {

/// These functions exist since TensorFlow 2.11, approximately.
bool has_float8() { return tf.DataTypeSize(tf_f8e4m3) == 1 && tf.DataTypeSize(tf_f8e5m2) == 1; }

/// The types that an op takes, as its definition lists them. Attributes cannot name 8-bit floats (a name ends at its
/// underscore there). With 8-bit floats, ops accept every type, and Call refuses the others.
std::string types() {
  if (has_float8()) return "type";
  std::string list;
  const auto add = [&list](const char* name) {
    if (*name) list += (list.empty() ? "" : ", ") + std::string(name);
  };
#define HVD_TF_NAME(enumerator, word, nccl, number, name, ...) add(name);
  HVD_DTYPE_NUMBERS(HVD_TF_NAME)
#undef HVD_TF_NAME
  return "{" + list + "}";
}

// ---- kernels of the collectives

#define HVD_NAME(enumerator, number, word, name) name,
const char* const kind_names[] = {HVD_KINDS(HVD_NAME)};
#undef HVD_NAME

template <hvd_kind kind>
void* create(TF_OpKernelConstruction* context) {
  auto attributes = std::make_unique<KernelAttributes>();
  OwnedStatus status;
  attributes->kind = kind;
  attributes->name = text(context, "tensor_name", status);
  if (!attributes->name.empty()) attributes->name = std::string(kind_names[kind]) + "." + attributes->name;
  attributes->set = small_integer(context, "process_set", status);
  attributes->blocking = boolean(context, "blocking", status);
  if (kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER) {
    attributes->reduce = small_integer(context, "reduce", status);
    attributes->prescale = real(context, "prescale_bits", status);
    attributes->postscale = real(context, "postscale_bits", status);
  }
  if (kind == HVD_BROADCAST) attributes->root = small_integer(context, "root", status);
  if (kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER || kind == HVD_ALLGATHER)
    attributes->group = boolean(context, "group", status);
  if (!status.ok()) {
    tf.OpKernelConstruction_Failure(context, status);
    return nullptr;
  }
  return attributes.release();
}

void remove(void* kernel) { delete static_cast<KernelAttributes*>(kernel); }

template <TensorPlace place>
void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  const KernelAttributes& attributes = *static_cast<KernelAttributes*>(kernel);
  (new KernelCall(attributes, place, context, copy_of(done)))->start(attributes.blocking);
}

/// For a TensorFlow without asynchronous kernels in its C API: takes one of its threads until the operation has ended.
/// hvd/tensorflow/_library.py then makes all ranks run them in one order.
void compute_blocking(void* kernel, TF_OpKernelContext* context) {
  (new KernelCall(*static_cast<KernelAttributes*>(kernel), TensorPlace::host, context, [] {}))->start(true);
}

// ---- a batch is read inside of a graph

void* create_fetch(TF_OpKernelConstruction* context) {
  OwnedStatus status;
  auto begins = std::make_unique<bool>(boolean(context, "begins", status));
  if (status.ok()) return begins.release();
  tf.OpKernelConstruction_Failure(context, status);
  return nullptr;
}

void remove_fetch(void* kernel) { delete static_cast<bool*>(kernel); }

void compute_fetch(void* kernel, TF_OpKernelContext*) {
  if (*static_cast<bool*>(kernel))
    runtime.part_begin(HVD_PART_FETCH);
  else
    runtime.part_end(HVD_PART_FETCH);
}

// ---- registration

struct OpDefinition {
  const char* name;
  std::string inputs, outputs, types;  ///< "" if there are none
  const char* attributes[8];           ///< up to a nullptr
  ShapeFunction shapes;
  CreateFunction create_function;
};

std::string define(const OpDefinition& d, const std::string& name) {
  TF_OpDefinitionBuilder* builder = tf.NewOpDefinitionBuilder(name.c_str());
  const bool many = d.inputs == "tensors: T";
  if (!d.types.empty())
    tf.OpDefinitionBuilderAddAttr(builder, (many ? "T: list(" + d.types + ") >= 1" : "T: " + d.types).c_str());
  for (const char* const* attribute = d.attributes; *attribute; ++attribute)
    tf.OpDefinitionBuilderAddAttr(builder, *attribute);
  if (!d.inputs.empty()) tf.OpDefinitionBuilderAddInput(builder, d.inputs.c_str());
  if (!d.outputs.empty()) tf.OpDefinitionBuilderAddOutput(builder, d.outputs.c_str());
  if (d.create_function == create<HVD_ALLTOALL>) {
    tf.OpDefinitionBuilderAddInput(builder, "splits: int32");
    tf.OpDefinitionBuilderAddOutput(builder, "received_splits: int32");
  }
  tf.OpDefinitionBuilderSetIsStateful(builder, true);
  tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, d.shapes);
  OwnedStatus status;
  tf.RegisterOpDefinition(builder, status);
  return status.ok() ? "" : name + ": " + status.text();
}

std::string add_kernel(const std::string& op, TF_KernelBuilder* builder) {
  OwnedStatus status;
  tf.RegisterKernelBuilder(op.c_str(), builder, status);
  return status.ok() ? "" : op + ": " + status.text();
}

/// Adds GPU kernels for ops whose results have their tensors' sizes.  The list of tensors must have one type that
/// TensorFlow keeps on GPUs.  By convention, TensorFlow keeps int32 on the host.  TensorFlow's C interface must be able
/// to return the type (for 8-bit floats: "Unexpected type").  A list of several types stays with the CPU.
std::string add_gpu_kernels(const OpDefinition& d, const std::string& name) {
  const std::string device = gpu_type();
  for (const TensorFlowType type : {tf_f16, tf_bf16, tf_f32, tf_f64, tf_i64}) {
    TF_KernelBuilder* builder =
        tf.NewAsyncKernelBuilder(name.c_str(), device.c_str(), d.create_function, compute<TensorPlace::gpu>, remove);
    OwnedStatus status;
    tf.KernelBuilder_TypeConstraint(builder, "T", type, status);
    if (!status.ok()) return name + ": " + status.text();
    if (std::string problem = add_kernel(name, builder); !problem.empty()) return problem;
  }
  return {};
}

constexpr const char* name_attribute = "tensor_name: string = ''";
constexpr const char* set_attribute = "process_set: int = 0";
constexpr const char* blocking_attribute = "blocking: bool = false";
constexpr const char* prescale_attribute = "prescale_bits: int";
constexpr const char* postscale_attribute = "postscale_bits: int";
constexpr const char* group_attribute = "group: bool = false";

std::string register_all(bool with_gpu) {
  const std::string possible = types();
  const OpDefinition definitions[] = {
      {"HvdAllreduce",
       "tensors: T",
       "reduced: T",
       possible,
       {name_attribute, set_attribute, blocking_attribute, group_attribute, "reduce: int = 1", prescale_attribute,
        postscale_attribute, nullptr},
       same_shapes,
       create<HVD_ALLREDUCE>},
      {"HvdAllgather",
       "tensors: T",
       "gathered: T",
       possible,
       {name_attribute, set_attribute, blocking_attribute, group_attribute, nullptr},
       other_first_dimension,
       create<HVD_ALLGATHER>},
      {"HvdBroadcast",
       "tensors: T",
       "received: T",
       possible,
       {name_attribute, set_attribute, blocking_attribute, "root: int", nullptr},
       same_shapes,
       create<HVD_BROADCAST>},
      {"HvdReducescatter",
       "tensors: T",
       "reduced: T",
       possible,
       {name_attribute, set_attribute, blocking_attribute, group_attribute, "reduce: int = 1", prescale_attribute,
        postscale_attribute, nullptr},
       other_first_dimension,
       create<HVD_REDUCESCATTER>},
      {"HvdAlltoall",
       "tensor: T",
       "received: T",
       possible,
       {name_attribute, set_attribute, blocking_attribute, nullptr},
       other_first_dimension,
       create<HVD_ALLTOALL>},
      {"HvdBarrier",
       "",
       "",
       "",
       {name_attribute, set_attribute, blocking_attribute, nullptr},
       no_shapes,
       create<HVD_BARRIER>},
  };
  std::string problem;
  const auto first = [&](const std::string& text) {
    if (problem.empty()) problem = text;
  };
  for (const OpDefinition& d : definitions)
    for (const std::string& name : {std::string(d.name), std::string(d.name) + "InOrder"}) {
      first(define(d, name));
      first(add_kernel(name, tf.NewAsyncKernelBuilder ? tf.NewAsyncKernelBuilder(name.c_str(), "CPU", d.create_function,
                                                                                 compute<TensorPlace::host>, remove)
                                                      : tf.NewKernelBuilder(name.c_str(), "CPU", d.create_function,
                                                                            compute_blocking, remove)));
      const bool sized = d.create_function == create<HVD_ALLREDUCE> || d.create_function == create<HVD_BROADCAST>;
      if (with_gpu && sized) first(add_gpu_kernels(d, name));
    }
  first(define({"", "", "answer: int32", "", {"what: int", set_attribute, nullptr}, scalars, nullptr}, "HvdWorld"));
  first(add_kernel("HvdWorld", tf.NewKernelBuilder("HvdWorld", "CPU", create_world, compute_world, remove_world)));
  first(define({"", "", "", "", {"begins: bool", nullptr}, no_shapes, nullptr}, "HvdFetch"));
  first(add_kernel("HvdFetch", tf.NewKernelBuilder("HvdFetch", "CPU", create_fetch, compute_fetch, remove_fetch)));
  // Runs after an operation whose result is not used on this rank; other ranks may use it.
  first(define({"", "", "", "", {nullptr}, no_shapes, nullptr}, "HvdKeep"));
  first(add_kernel("HvdKeep", tf.NewKernelBuilder(
                                  "HvdKeep", "CPU", [](TF_OpKernelConstruction*) -> void* { return nullptr; },
                                  [](void*, TF_OpKernelContext*) {}, [](void*) {})));
  return problem;
}

/// Returns "", or the reason why there are no ops.
std::string& problem_at_load() {
  static std::string* const problem = new std::string;
  return *problem;
}

/// If the GPU was requested: returns "", or the reason why its tensors go through host memory.
std::string& problem_of_gpu() {
  static std::string* const problem = new std::string;
  return *problem;
}

__attribute__((constructor)) void on_load() {
  std::string problem = find_tensorflow();
  if (problem.empty()) problem = bridge::find_runtime();
  if (problem.empty() && gpu_wanted()) problem_of_gpu() = find_gpu();
  if (problem.empty()) problem = register_all(gpu_wanted() && problem_of_gpu().empty());
  problem_at_load() = problem;
}

}  // namespace
}  // namespace hvd::tensorflow

extern "C" {

/// For hvd/tensorflow/_library.py.
__attribute__((visibility("default"))) const char* hvd_tensorflow_problem() {
  return hvd::tensorflow::problem_at_load().c_str();
}

/// Returns 1 if HVD_TENSORFLOW_GPU requests kernels on the GPU. *problem is then "", or the reason for their absence.
__attribute__((visibility("default"))) int hvd_tensorflow_gpu(const char** problem) {
  *problem = hvd::tensorflow::problem_of_gpu().c_str();
  return hvd::tensorflow::gpu_wanted() ? 1 : 0;
}

/// Returns 1 if the kernels are asynchronous.
__attribute__((visibility("default"))) int hvd_tensorflow_asynchronous() {
  return hvd::tensorflow::tf.NewAsyncKernelBuilder != nullptr;
}

/// Returns 1 if this TensorFlow has 8-bit floats.
__attribute__((visibility("default"))) int hvd_tensorflow_float8() { return hvd::tensorflow::has_float8(); }

/// The text of the last failure of a kernel, truncated to @p room bytes with its NUL.
__attribute__((visibility("default"))) void hvd_tensorflow_failure(char* text, std::size_t room) {
  std::snprintf(text, room, "%s", hvd::tensorflow::last_failure().c_str());
}

__attribute__((visibility("default"))) void hvd_tensorflow_exiting() { hvd::bridge::stop_completions(); }
}
