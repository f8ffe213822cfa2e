/// @file tf_device.cc — a device for TensorFlow, "FAKEGPU", whose streams, memory and copies are the fake CUDA
/// driver's.
///
/// A pluggable device (tensorflow/c/experimental/stream_executor). tests/python/test_tensorflow_gpu.py compiles it
/// against the headers of the installed TensorFlow. The device uses the driver like TensorFlow's own GPU device: one
/// stream for kernels, others for copies, and memory that is reused in the order of the first stream. TensorFlow waits
/// for none of these before a kernel's compute function runs. The device's kernel, HvdFakeScale, writes with a delay.
/// Environment: HVD_CUDA_LIBRARY; OMPI_COMM_WORLD_LOCAL_RANK: the index of the driver's device.
#include <dlfcn.h>
#include <time.h>

#include <cstdlib>
#include <cstring>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_tensor.h"

using Address = unsigned long long;
struct SP_Stream_st {
  void* stream;
};
struct SP_Event_st {
  void* event;
};
struct SP_Timer_st {};

namespace {

constexpr int untimed = 2, non_blocking = 1;
constexpr char type[] = "FAKEGPU";

template <class Function>
Function find(const char* name) {
  static void* const driver = dlopen(std::getenv("HVD_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  void* symbol = driver ? dlsym(driver, name) : nullptr;
  if (!symbol) std::abort();
  return reinterpret_cast<Function>(symbol);
}

int ordinal() {
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  return text ? std::atoi(text) : 0;
}

/// The device's primary context is current while this lives.
struct Current {
  Current() {
    static void* const context = [] {
      void* c = nullptr;
      find<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&c, ordinal());
      return c;
    }();
    find<int (*)(void*)>("cuCtxPushCurrent_v2")(context);
  }
  ~Current() {
    void* was = nullptr;
    find<int (*)(void**)>("cuCtxPopCurrent_v2")(&was);
  }
};

template <class... Parameters>
int call(const char* name, Parameters... arguments) {
  const Current current;
  return find<int (*)(Parameters...)>(name)(arguments...);
}

void say(TF_Status* status, int code) { TF_SetStatus(status, code ? TF_INTERNAL : TF_OK, code ? "fake CUDA" : ""); }
Address address(const SP_DeviceMemoryBase* memory) { return reinterpret_cast<Address>(memory->opaque); }
void nap() {
  const timespec pause{0, 50'000};
  nanosleep(&pause, nullptr);
}

// ---- memory

void allocate(const SP_Device*, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  Address at = 0;
  call("cuMemAlloc_v2", &at, static_cast<std::size_t>(size));
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = reinterpret_cast<void*>(at);
  memory->size = at ? size : 0;
}
void deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  call("cuMemFree_v2", address(memory));
  memory->opaque = nullptr;
}
void* host_allocate(const SP_Device*, uint64_t size) { return std::aligned_alloc(64, (size + 63) / 64 * 64); }
void host_deallocate(const SP_Device*, void* memory) { std::free(memory); }
TF_Bool stats(const SP_Device*, SP_AllocatorStats*) { return 0; }
TF_Bool usage(const SP_Device*, int64_t* free, int64_t* total) {
  *free = *total = int64_t{1} << 30;
  return 1;
}

// ---- streams and events

void create_stream(const SP_Device*, SP_Stream* stream, TF_Status* status) {
  *stream = new SP_Stream_st{};
  say(status, call("cuStreamCreateWithPriority", &(*stream)->stream, unsigned{non_blocking}, 0));
}
void destroy_stream(const SP_Device*, SP_Stream stream) { delete stream; }
void create_event(const SP_Device*, SP_Event* event, TF_Status* status) {
  *event = new SP_Event_st{};
  say(status, call("cuEventCreate", &(*event)->event, unsigned{untimed}));
}
void destroy_event(const SP_Device*, SP_Event event) {
  call("cuEventDestroy_v2", event->event);
  delete event;
}
void record(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  say(status, call("cuEventRecord", event->event, stream->stream));
}
void wait(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  say(status, call("cuStreamWaitEvent", stream->stream, event->event, 0u));
}
void depend(const SP_Device* device, SP_Stream dependent, SP_Stream other, TF_Status* status) {
  SP_Event event;
  create_event(device, &event, status);
  record(device, other, event, status);
  wait(device, dependent, event, status);
  destroy_event(device, event);
}
SE_EventStatus event_status(const SP_Device*, SP_Event event) {
  return call("cuEventQuery", event->event) == 0 ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}
void stream_status(const SP_Device*, SP_Stream, TF_Status* status) { say(status, 0); }
void block_for_event(const SP_Device* device, SP_Event event, TF_Status* status) {
  while (event_status(device, event) == SE_EVENT_PENDING) nap();
  say(status, 0);
}
void block(const SP_Device*, SP_Stream stream, TF_Status* status) {
  say(status, call("cuStreamSynchronize", stream->stream));
}
void synchronize(const SP_Device*, TF_Status* status) {
  SP_Event_st event{};
  call("cuEventCreate", &event.event, unsigned{untimed});
  const Current current;
  void* context = nullptr;
  find<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, ordinal());
  find<int (*)(void*, void*)>("cuCtxRecordEvent")(context, event.event);
  block_for_event(nullptr, &event, status);
}

struct Callback {
  SE_StatusCallbackFn function;
  void* argument;
};
TF_Bool host_callback(const SP_Device*, SP_Stream stream, SE_StatusCallbackFn function, void* argument) {
  find<void (*)(void*, void (*)(void*), void*)>("fake_cuda_enqueue")(
      stream->stream,
      [](void* context) {
        auto* callback = static_cast<Callback*>(context);
        TF_Status* status = TF_NewStatus();
        callback->function(callback->argument, status);
        TF_DeleteStatus(status);
        delete callback;
      },
      new Callback{function, argument});
  return 1;
}

// ---- copies

void to_host(const SP_Device*, SP_Stream stream, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
             TF_Status* status) {
  say(status, call("cuMemcpyDtoHAsync_v2", to, address(from), static_cast<std::size_t>(size), stream->stream));
}
void to_device(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
               TF_Status* status) {
  say(status, call("cuMemcpyHtoDAsync_v2", address(to), from, static_cast<std::size_t>(size), stream->stream));
}
void on_device(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
               uint64_t size, TF_Status* status) {
  say(status, call("cuMemcpyDtoDAsync_v2", address(to), address(from), static_cast<std::size_t>(size), stream->stream));
}
void to_host_now(const SP_Device* device, void* to, const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  SP_Stream_st fallback{};
  to_host(device, &fallback, to, from, size, status);
  block(device, &fallback, status);
}
void to_device_now(const SP_Device* device, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
                   TF_Status* status) {
  SP_Stream_st fallback{};
  to_device(device, &fallback, to, from, size, status);
  block(device, &fallback, status);
}
void on_device_now(const SP_Device* device, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from, uint64_t size,
                   TF_Status* status) {
  SP_Stream_st fallback{};
  on_device(device, &fallback, to, from, size, status);
  block(device, &fallback, status);
}
void fill(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* at, uint8_t pattern, uint64_t size,
          TF_Status* status) {
  say(status, call("cuMemsetD8Async", address(at), static_cast<unsigned char>(pattern), static_cast<std::size_t>(size),
                   stream->stream));
}
void zero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* at, uint64_t size, TF_Status* status) {
  fill(device, stream, at, 0, size, status);
}
void fill_words(const SP_Device*, SP_Stream, SP_DeviceMemoryBase*, uint32_t, uint64_t, TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "memset32");
}

// ---- timers, which have no reader

void create_timer(const SP_Device*, SP_Timer* timer, TF_Status*) { *timer = new SP_Timer_st; }
void destroy_timer(const SP_Device*, SP_Timer timer) { delete timer; }
void run_timer(const SP_Device*, SP_Stream, SP_Timer, TF_Status*) {}

// ---- the platform

void count(const SP_Platform*, int* devices, TF_Status*) { *devices = 1; }
void create_device(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status*) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = params->device->device_vendor = "fake";
  params->device->pci_bus_id = "0000:00:00.0";
}
void create_executor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status*) {
  SP_StreamExecutor& e = *params->stream_executor;
  e.struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  e.allocate = allocate, e.deallocate = deallocate;
  e.host_memory_allocate = host_allocate, e.host_memory_deallocate = host_deallocate;
  e.get_allocator_stats = stats, e.device_memory_usage = usage;
  e.create_stream = create_stream, e.destroy_stream = destroy_stream;
  e.create_stream_dependency = depend, e.get_stream_status = stream_status;
  e.create_event = create_event, e.destroy_event = destroy_event, e.get_event_status = event_status;
  e.record_event = record, e.wait_for_event = wait;
  e.create_timer = create_timer, e.destroy_timer = destroy_timer;
  e.start_timer = run_timer, e.stop_timer = run_timer;
  e.memcpy_dtoh = to_host, e.memcpy_htod = to_device, e.memcpy_dtod = on_device;
  e.sync_memcpy_dtoh = to_host_now, e.sync_memcpy_htod = to_device_now, e.sync_memcpy_dtod = on_device_now;
  e.block_host_for_event = block_for_event, e.block_host_until_done = block;
  e.synchronize_all_activity = synchronize;
  e.mem_zero = zero, e.memset = fill, e.memset32 = fill_words;
  e.host_callback = host_callback;
}
void create_device_fns(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status*) {
  *params->device_fns = {};
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
}
void create_timer_fns(const SP_Platform*, SP_TimerFns* timer, TF_Status*) {
  timer->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  timer->nanoseconds = [](SP_Timer) { return uint64_t{0}; };
}

// ---- HvdFakeScale: its tensor times a number, with a delay

struct Work {
  const float* in;
  float* out;
  std::size_t count;
  float factor;
};

void* create_scale(TF_OpKernelConstruction* context) {
  auto* factor = new float(0);
  TF_Status* status = TF_NewStatus();
  TF_OpKernelConstruction_GetAttrFloat(context, "factor", factor, status);
  TF_DeleteStatus(status);
  return factor;
}
void delete_scale(void* factor) { delete static_cast<float*>(factor); }

void scale(void* factor, TF_OpKernelContext* context) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* in = nullptr;
  TF_GetInput(context, 0, &in, status);
  int64_t dims[8];
  const int ndim = TF_NumDims(in);
  for (int i = 0; i < ndim; ++i) dims[i] = TF_Dim(in, i);
  const std::size_t bytes = TF_TensorByteSize(in);
  TF_Tensor* out = TF_AllocateOutput(context, 0, TF_FLOAT, dims, ndim, bytes, status);
  const SP_Stream stream = TF_GetStream(context, status);
  if (TF_GetCode(status) == TF_OK)
    find<void (*)(void*, void (*)(void*), void*)>("fake_cuda_enqueue")(
        stream->stream,
        [](void* context) {
          auto* work = static_cast<Work*>(context);
          const timespec pause{0, 2'000'000};
          nanosleep(&pause, nullptr);
          for (std::size_t i = 0; i < work->count; ++i) work->out[i] = work->in[i] * work->factor;
          delete work;
        },
        new Work{static_cast<const float*>(TF_TensorData(in)), static_cast<float*>(TF_TensorData(out)),
                 bytes / sizeof(float), *static_cast<float*>(factor)});
  else
    TF_OpKernelContext_Failure(context, status);
  TF_DeleteTensor(in);
  if (out) TF_DeleteTensor(out);
  TF_DeleteStatus(status);
}

__attribute__((constructor)) void on_load() {
  TF_Status* status = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HvdFakeScale");
  TF_OpDefinitionBuilderAddInput(op, "tensor: float");
  TF_OpDefinitionBuilderAddOutput(op, "scaled: float");
  TF_OpDefinitionBuilderAddAttr(op, "factor: float");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, [](TF_ShapeInferenceContext* context, TF_Status* inferred) {
    TF_ShapeHandle* shape = TF_NewShapeHandle();
    TF_ShapeInferenceContextGetInput(context, 0, shape, inferred);
    TF_ShapeInferenceContextSetOutput(context, 0, shape, inferred);
    TF_DeleteShapeHandle(shape);
  });
  TF_RegisterOpDefinition(op, status);
  TF_RegisterKernelBuilder("HvdFakeScale", TF_NewKernelBuilder("HvdFakeScale", type, create_scale, scale, delete_scale),
                           status);
  TF_DeleteStatus(status);
}

}  // namespace

extern "C" void TF_InitKernel() {}

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "HVD_FAKE";
  params->platform->type = type;
  params->platform->supports_unified_memory = 0;
  params->platform->use_bfc_allocator = 1;
  params->platform->force_memory_growth = 1;
  SP_PlatformFns& f = *params->platform_fns;
  f.struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  f.get_device_count = count;
  f.create_device = create_device;
  f.destroy_device = [](const SP_Platform*, SP_Device*) {};
  f.create_device_fns = create_device_fns;
  f.destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  f.create_stream_executor = create_executor;
  f.destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  f.create_timer_fns = create_timer_fns;
  f.destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};
  TF_SetStatus(status, TF_OK, "");
}
