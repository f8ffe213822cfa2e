/* results.c — results whose size depends on all ranks: DLPack capsules, and bytes. */
#include <stdlib.h>

#include "dlpack.h"
#include "native.h"

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

/* gpu: the GPU of the memory, -1: host memory */
static PyObject* bytes_capsule(void* data, int64_t bytes, int32_t gpu) {
  dl_managed* managed = calloc(1, sizeof *managed);
  if (!managed) return PyErr_NoMemory();
  managed->bytes = bytes;
  managed->tensor.data = data;
  managed->tensor.device.device_type = gpu < 0 ? DL_HOST : DL_CUDA;
  managed->tensor.device.device_id = gpu < 0 ? 0 : gpu;
  managed->tensor.ndim = 1;
  managed->tensor.dtype.code = DL_UINT;
  managed->tensor.dtype.bits = 8;
  managed->tensor.dtype.lanes = 1;
  managed->tensor.shape = &managed->bytes;
  managed->deleter = dl_delete;
  PyObject* capsule = PyCapsule_New(managed, "dltensor", capsule_delete);
  if (!capsule) free(managed);
  return capsule;
}

/* take(handle, bytes_per_element, gpu or -1) -> (capsule of all bytes [bytes], shape). Releases the handle. */
static PyObject* py_take(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  hvd_handle handle;
  void* data = NULL;
  int64_t shape[MAX_DIMS];
  int32_t ndim = 0;
  if (count != 2 && count != 3) return wrong_count("take", count);
  if (handle_of(args[0], &handle)) return NULL;
  int64_t bytes;
  int32_t gpu = -1;
  if (int64_of(args[1], "bytes per element", &bytes)) return NULL;
  if (count == 3 && int32_of(args[2], "gpu", &gpu)) return NULL;
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

/* take_splits(handle, ranks) -> the number of rows from each. Called before take, which releases the handle. */
static PyObject* py_take_splits(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  hvd_handle handle;
  if (count != 2) return wrong_count("take_splits", count);
  if (handle_of(args[0], &handle)) return NULL;
  int32_t ranks;
  if (int32_of(args[1], "ranks", &ranks)) return NULL;
  if (ranks < 0) return PyErr_Format(PyExc_ValueError, "take_splits: a number of ranks is needed");
  hvd_world world = {0};
  lib.get_world(&world); /* no set is larger: the numbers always fit */
  const size_t room = ranks > world.size ? (size_t)ranks : (size_t)world.size;
  int64_t* splits = malloc((room + 1) * sizeof *splits);
  if (!splits) return PyErr_NoMemory();
  const int status = lib.take_splits(handle, splits);
  PyObject* result = status == HVD_OK ? PyTuple_New(ranks) : raise_status(status);
  for (int32_t i = 0; result && i < ranks; ++i) PyTuple_SetItem(result, i, PyLong_FromLongLong(splits[i]));
  free(splits);
  return result;
}

/* take_bytes(handle) -> the result of bytes [n]. Releases the handle. */
static PyObject* py_take_bytes(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  void* data = NULL;
  int64_t shape[MAX_DIMS];
  int32_t ndim = 0;
  if (handle_of(arg, &handle)) return NULL;
  const int status = lib.take(handle, &data, shape, &ndim);
  PyObject* result = status == HVD_OK ? PyBytes_FromStringAndSize(data, shape[0]) : raise_status(status);
  lib.release(handle);
  lib.free(data);
  return result;
}

/* alloc(bytes) -> capsule of registered memory [bytes], zeroed. The consumer of the capsule frees the memory. */
static PyObject* py_alloc(PyObject* self, PyObject* arg) {
  (void)self;
  void* data = NULL;
  int64_t bytes;
  if (int64_of(arg, "bytes", &bytes)) return NULL;
  if (bytes < 0) return PyErr_Format(PyExc_ValueError, "alloc: a negative number of bytes");
  const int status = lib.alloc((size_t)bytes, &data);
  if (status != HVD_OK) return raise_status(status);
  PyObject* capsule = bytes_capsule(data, bytes, -1);
  if (!capsule) lib.free(data);
  return capsule;
}

/* join_result(handle) -> the last rank to join. Releases the handle. */
static PyObject* py_join_result(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  int32_t last = -1;
  if (handle_of(arg, &handle)) return NULL;
  const int status = lib.join_result(handle, &last);
  PyObject* result = status == HVD_OK ? PyLong_FromLong(last) : raise_status(status);
  lib.release(handle);
  return result;
}

PyMethodDef result_methods[] = {
    {"alloc", py_alloc, METH_O, "alloc(bytes) -> DLPack capsule of registered memory, zeroed"},
    {"join_result", py_join_result, METH_O, "join_result(handle) -> the last rank to join"},
    {"take", FAST(py_take), METH_FASTCALL, "take(handle, bytes per element, gpu) -> (DLPack capsule of bytes, shape)"},
    {"take_bytes", py_take_bytes, METH_O, "take_bytes(handle) -> bytes"},
    {"take_splits", FAST(py_take_splits), METH_FASTCALL, "take_splits(handle, ranks) -> rows from each rank"},
    {NULL, NULL, 0, NULL}};
