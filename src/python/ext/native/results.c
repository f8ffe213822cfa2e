/* results.c — results whose size the ranks find out together: DLPack capsules, and bytes. */
#include <stdlib.h>

#include "native.h"

/* The part of DLPack's ABI (dlpack.h, version 0.8 layout) that a one-dimensional byte tensor needs. */
typedef struct dl_tensor {
  void* data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void* context;
  void (*deleter)(struct dl_managed*);
  int64_t bytes; /* ours: the shape */
} dl_managed;

/* May run on any thread, without the GIL, after the interpreter is gone. */
static void dl_delete(dl_managed* managed) {
  lib.free(managed->tensor.data);
  free(managed);
}

static void capsule_delete(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return; /* a framework took it */
  dl_managed* managed = PyCapsule_GetPointer(capsule, "dltensor");
  managed->deleter(managed);
}

/* gpu: whose memory it is, -1: the host's */
static PyObject* bytes_capsule(void* data, int64_t bytes, int32_t gpu) {
  dl_managed* managed = calloc(1, sizeof *managed);
  if (!managed) return PyErr_NoMemory();
  managed->bytes = bytes;
  managed->tensor.data = data;
  managed->tensor.device.device_type = gpu < 0 ? 1 : 2; /* kDLCPU, kDLCUDA */
  managed->tensor.device.device_id = gpu < 0 ? 0 : gpu;
  managed->tensor.ndim = 1;
  managed->tensor.dtype.code = 1; /* kDLUInt */
  managed->tensor.dtype.bits = 8;
  managed->tensor.dtype.lanes = 1;
  managed->tensor.shape = &managed->bytes;
  managed->deleter = dl_delete;
  PyObject* capsule = PyCapsule_New(managed, "dltensor", capsule_delete);
  if (!capsule) free(managed);
  return capsule;
}

/* take(handle, bytes_per_element, gpu or -1) -> (capsule of all bytes [bytes], shape).  The handle is forgotten. */
static PyObject* py_take(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  hvd_handle handle;
  void* data = NULL;
  int64_t shape[MAX_DIMS];
  int32_t ndim = 0;
  if (count != 2 && count != 3) return wrong_count("take", count);
  if (handle_of(args[0], &handle)) return NULL;
  int64_t bytes = PyLong_AsLongLong(args[1]);
  if (bytes == -1 && PyErr_Occurred()) return NULL;
  const int32_t gpu = count == 3 ? (int32_t)PyLong_AsLong(args[2]) : -1;
  if (gpu == -1 && PyErr_Occurred()) return NULL;
  const int status = lib.take(handle, &data, shape, &ndim);
  if (status != HVD_OK) return raise_status(status);
  lib.release(handle);
  PyObject* dims = PyTuple_New(ndim);
  for (int32_t i = 0; dims && i < ndim; ++i) {
    bytes *= shape[i];
    PyTuple_SetItem(dims, i, PyLong_FromLongLong(shape[i]));
  }
  PyObject* capsule = dims ? bytes_capsule(data, bytes, gpu) : NULL;
  if (!capsule) {
    lib.free(data);
    Py_XDECREF(dims);
    return NULL;
  }
  return Py_BuildValue("(NN)", capsule, dims);
}

/* take_splits(handle, ranks) -> how many rows came from each.  Before take, which forgets the handle. */
static PyObject* py_take_splits(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  hvd_handle handle;
  if (count != 2) return wrong_count("take_splits", count);
  if (handle_of(args[0], &handle)) return NULL;
  const Py_ssize_t ranks = PyLong_AsSsize_t(args[1]);
  if (ranks < 0 || ranks > INT32_MAX) return PyErr_Format(PyExc_ValueError, "take_splits: a number of ranks is needed");
  hvd_world world = {0};
  lib.get_world(&world); /* no set is larger: what is filled in always fits */
  const size_t room = ranks > world.size ? (size_t)ranks : (size_t)world.size;
  int64_t* splits = malloc((room + 1) * sizeof *splits);
  if (!splits) return PyErr_NoMemory();
  const int status = lib.take_splits(handle, splits);
  PyObject* result = status == HVD_OK ? PyTuple_New(ranks) : raise_status(status);
  for (Py_ssize_t i = 0; result && i < ranks; ++i) PyTuple_SetItem(result, i, PyLong_FromLongLong(splits[i]));
  free(splits);
  return result;
}

/* gather_bytes(name, data, set) -> the bytes of all ranks, one after the other. */
static PyObject* py_gather_bytes(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  name_box full_name;
  hvd_request request = {.struct_size = sizeof request,
                         .kind = HVD_ALLGATHER,
                         .dtype = HVD_U8,
                         .reduce = HVD_SUM,
                         .device = HVD_HOST_DEVICE,
                         .prescale = 1,
                         .postscale = 1};
  hvd_handle handle = 0;
  void* data = NULL;
  int64_t shape[MAX_DIMS];
  int32_t ndim = 0;
  int status;
  if (count != 3) return wrong_count("gather_bytes", count);
  if (!PyBytes_Check(args[1])) return PyErr_Format(PyExc_TypeError, "gather_bytes: bytes expected");
  request.set = (int32_t)PyLong_AsLong(args[2]);
  if (PyErr_Occurred() || usable() || fill_name(&full_name, HVD_ALLGATHER, args[0])) return NULL;
  shape[0] = PyBytes_Size(args[1]);
  request.name = full_name.text;
  request.shape = shape;
  request.ndim = 1;
  request.in = PyBytes_AsString(args[1]);
  status = lib.submit(&request, &handle);
  free(full_name.there);
  if (status != HVD_OK) return raise_status(status);
  if (wait_in_slices(handle, &status)) {
    Py_INCREF(args[1]); /* the operation still reads them: see py_run */
    lib.release(handle);
    return NULL;
  }
  if (status == HVD_OK) status = lib.take(handle, &data, shape, &ndim);
  PyObject* result = status == HVD_OK ? PyBytes_FromStringAndSize(data, shape[0]) : raise_status(status);
  lib.release(handle);
  lib.free(data);
  return result;
}

/* alloc(bytes) -> capsule of registered memory [bytes], zeroed.  Whoever takes the capsule frees it. */
static PyObject* py_alloc(PyObject* self, PyObject* arg) {
  (void)self;
  void* data = NULL;
  const long long bytes = PyLong_AsLongLong(arg);
  if (PyErr_Occurred()) return NULL;
  if (bytes < 0) return PyErr_Format(PyExc_ValueError, "alloc: a negative number of bytes");
  const int status = lib.alloc((size_t)bytes, &data);
  if (status != HVD_OK) return raise_status(status);
  PyObject* capsule = bytes_capsule(data, bytes, -1);
  if (!capsule) lib.free(data);
  return capsule;
}

/* join(set) -> the last rank to join. */
static PyObject* py_join(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_request request = {.struct_size = sizeof request, .kind = HVD_JOIN, .device = HVD_HOST_DEVICE};
  hvd_handle handle = 0;
  int32_t last = -1;
  request.set = (int32_t)PyLong_AsLong(arg);
  if (PyErr_Occurred() || usable()) return NULL;
  int status = lib.submit(&request, &handle);
  if (status != HVD_OK) return raise_status(status);
  if (wait_in_slices(handle, &status)) {
    lib.release(handle);
    return NULL;
  }
  if (status == HVD_OK) status = lib.join_result(handle, &last);
  PyObject* result = status == HVD_OK ? PyLong_FromLong(last) : raise_status(status);
  lib.release(handle);
  return result;
}

PyMethodDef result_methods[] = {
    {"join", py_join, METH_O, "join(set) -> the last rank to join"},
    {"alloc", py_alloc, METH_O, "alloc(bytes) -> DLPack capsule of registered memory, zeroed"},
    {"take", FAST(py_take), METH_FASTCALL, "take(handle, bytes per element, gpu) -> (DLPack capsule of bytes, shape)"},
    {"take_splits", FAST(py_take_splits), METH_FASTCALL, "take_splits(handle, ranks) -> rows from each rank"},
    {"gather_bytes", FAST(py_gather_bytes), METH_FASTCALL, "gather_bytes(name, bytes, set) -> bytes"},
    {NULL, NULL, 0, NULL}};
