/* tensor_calls.c — calls of hvd.torch whose tensors C can read: from the arguments to the handle, or to the result.
 *
 * Each function returns None, without an effect, if Python must do the call: for other tensors, for tensors on GPUs
 * as its comment says, and for wrong arguments.
 */
#include "tensor_calls.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

static int factor_of(PyObject* value, double* factor) {
  if (!PyFloat_Check(value)) return 0;
  *factor = PyFloat_AsDouble(value);
  return 1;
}

static int reduction_of(const call_options* options, int32_t* reduce) {
  if (options->average != Py_None) return 0;
  *reduce = HVD_AVERAGE;
  if (options->op == Py_None) return 1;
  if (!PyLong_CheckExact(options->op)) return 0;
  const long number = PyLong_AsLong(options->op);
  *reduce = (int32_t)number;
  return number >= HVD_AVERAGE && number <= HVD_PRODUCT;
}

static int set_of(PyObject* process_set, int32_t* set) {
  PyObject* number = PyObject_GetAttr(process_set, attributes.process_set_id);
  const long found = number && PyLong_CheckExact(number) ? PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  *set = (int32_t)found;
  return found >= 0 && found <= INT32_MAX;
}

int fill_options(hvd_request* request, int32_t kind, const call_options* options) {
  memset(request, 0, sizeof *request);
  request->struct_size = sizeof *request;
  request->kind = kind;
  if (reduction_of(options, &request->reduce) && factor_of(options->prescale, &request->prescale) &&
      factor_of(options->postscale, &request->postscale) && set_of(options->process_set, &request->set)) {
    settle_factors(request);
    return 1;
  }
  PyErr_Clear();
  return 0;
}

void fill_memory(hvd_request* request, const tensor_memory* memory) {
  request->dtype = memory->dtype;
  request->shape = memory->shape;
  request->ndim = memory->ndim;
  request->device = memory->device;
  request->stream = memory->stream;
  request->in = memory->data;
}

/* (): the host; ((gpu, stream),). */
static PyObject* devices_of_one(const tensor_memory* memory) {
  if (memory->device == HVD_HOST_DEVICE) return PyTuple_New(0);
  return Py_BuildValue("((iN))", (int)memory->device, PyLong_FromVoidPtr(memory->stream));
}

/* The tables of hvd/_runtime/submission.py: {handle: (tensor, result, devices)}. */
static PyObject* note_pending(PyObject* pending, hvd_handle handle, PyObject* tensor, PyObject* devices) {
  PyObject* key = PyLong_FromLongLong(handle);
  PyObject* entry = key ? PyTuple_New(3) : NULL;
  if (entry) {
    Py_INCREF(tensor);
    Py_INCREF(tensor);
    Py_INCREF(devices);
    PyTuple_SetItem(entry, 0, tensor);
    PyTuple_SetItem(entry, 1, tensor);
    PyTuple_SetItem(entry, 2, devices);
  }
  if (!entry || PyDict_SetItem(pending, key, entry)) {
    Py_INCREF(tensor); /* for ever: the runtime writes to it */
    Py_CLEAR(key);
  }
  Py_XDECREF(entry);
  return key;
}

/* allreduce_in_place(pending, tensor, name, average, op, prescale, postscale, process set) -> handle */
static PyObject* py_allreduce_in_place(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 8) return wrong_count("allreduce_in_place", count);
  PyObject* tensor = args[1];
  const call_options options = {args[2], args[3], args[4], args[5], args[6], args[7]};
  hvd_request request;
  tensor_memory memory;
  if (!fill_options(&request, HVD_ALLREDUCE, &options) || !read_tensor(tensor, &memory) || !lies_by_rows(&memory))
    Py_RETURN_NONE;
  name_box name;
  if (usable_in_world() || fill_name(&name, request.kind, options.name)) return NULL;
  fill_memory(&request, &memory);
  request.out = memory.data;
  request.name = name.text;
  hvd_handle handle = 0;
  PyObject* devices = devices_of_one(&memory);
  int recorded;
  const int status = devices ? submit_requests(&request, 1, 0, &handle, &recorded) : HVD_OK;
  free(name.there);
  PyObject* key = NULL;
  if (status != HVD_OK) {
    raise_status(status);
  } else if (devices) {
    submitted(handle);
    key = note_pending(args[0], handle, tensor, devices);
  }
  Py_XDECREF(devices);
  return key;
}

/* hand_over() of hvd/_runtime/submission.py. 0, or -1 with an exception. */
static int hand_over(PyObject* before_waiting) {
  while (PySet_Size(before_waiting) > 0) {
    PyObject* one = PySet_Pop(before_waiting);
    if (!one && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear(); /* another thread was faster */
    if (!one && !PyErr_Occurred()) continue;
    PyObject* done = one ? PyObject_CallMethod(one, "flush", NULL) : NULL;
    Py_XDECREF(one);
    if (!done) return -1;
    Py_DECREF(done);
  }
  return PyErr_Occurred() ? -1 : 0;
}

/* finish_tensor(pending, handle, before_waiting) -> the result. None for all but one tensor in host memory. */
static PyObject* py_finish_tensor(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 3) return wrong_count("finish_tensor", count);
  PyObject *pending = args[0], *key = args[1];
  if (!PyLong_CheckExact(key)) Py_RETURN_NONE;
  PyObject* entry = value_of(pending, key);
  if (!entry) return PyErr_Occurred() ? NULL : (Py_INCREF(Py_None), Py_None);
  if (!PyTuple_CheckExact(entry) || PyTuple_Size(PyTuple_GetItem(entry, 2)) != 0) {
    Py_DECREF(entry);
    Py_RETURN_NONE;
  }
  hvd_handle handle;
  int done;
  PyObject* result = NULL;
  if (hand_over(args[2]) == 0 && handle_of(key, &handle) == 0) {
    if (finish_handle(handle) == 0) {
      result = PyTuple_GetItem(entry, 1);
      Py_INCREF(result);
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    /* A handle that is still known is in progress: a signal ended the wait. */
    if ((result || lib.poll(handle, &done) != HVD_OK) && PyDict_DelItem(pending, key)) PyErr_Clear();
    PyErr_Restore(type, value, trace);
  }
  Py_DECREF(entry);
  return result;
}

/* ---- results whose size depends on all ranks */

/* DLManagedTensorVersioned of a result in host memory. */
typedef struct shaped_result {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct shaped_result*);
  uint64_t flags;
  dl_tensor tensor;
  int64_t sizes[]; /* ours: the shape, then the strides */
} shaped_result;

/* May run on any thread, without the GIL, after the interpreter is gone. */
static void delete_result(shaped_result* result) {
  lib.free(result->tensor.data);
  free(result);
}

/* A tensor over the result of an ended operation, with the type of `like`. */
static PyObject* take_tensor(hvd_handle handle, const tensor_memory* like) {
  void* data = NULL;
  int64_t shape[MAX_DIMS];
  int32_t ndim = 0;
  const int status = lib.take(handle, &data, shape, &ndim);
  if (status != HVD_OK) return raise_status(status);
  shaped_result* result = calloc(1, sizeof *result + 2 * (size_t)ndim * sizeof *result->sizes);
  if (!result) {
    lib.free(data);
    return PyErr_NoMemory();
  }
  int64_t* strides = result->sizes + ndim;
  int64_t stride = 1;
  for (int32_t i = ndim; i-- > 0; stride *= shape[i]) {
    result->sizes[i] = shape[i];
    strides[i] = stride;
  }
  result->major = DL_EXCHANGE_MAJOR;
  result->tensor.data = data;
  result->tensor.ndim = ndim;
  result->deleter = delete_result;
  result->tensor.device.device_type = DL_HOST;
  memcpy(&result->tensor.dtype, &like->dl_dtype, sizeof result->tensor.dtype);
  result->tensor.shape = result->sizes;
  result->tensor.strides = strides;
  return tensor_over(result);
}

/* exchange_now(kind, tensor, name, op, prescale, postscale, process set, before_waiting) -> the result: of an allreduce
 * the tensor itself; of an allgather, a reducescatter, or an alltoall in equal parts a new one.  None for tensors on
 * GPUs. */
static PyObject* py_exchange_now(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 8) return wrong_count("exchange_now", count);
  const call_options options = {args[2], Py_None, args[3], args[4], args[5], args[6]};
  int32_t kind;
  hvd_request request;
  tensor_memory memory;
  if (int32_of(args[0], "kind", &kind)) return NULL;
  if (!fill_options(&request, kind, &options) || !read_tensor(args[1], &memory) || !lies_by_rows(&memory) ||
      memory.device != HVD_HOST_DEVICE)
    Py_RETURN_NONE;
  name_box name;
  if (usable_in_world() || fill_name(&name, kind, options.name)) return NULL;
  fill_memory(&request, &memory);
  request.name = name.text;
  if (kind == HVD_ALLREDUCE) request.out = memory.data;
  hvd_handle handle = 0;
  int status = HVD_OK;
  const int failed = hand_over(args[7]) || submit_and_wait(&request, &handle, &status);
  free(name.there);
  if (failed) {
    if (handle) Py_INCREF(args[1]); /* for ever: a signal has ended the wait, and the operation goes on */
    return NULL;
  }
  PyObject* result = NULL;
  if (status != HVD_OK)
    raise_status(status);
  else if (kind != HVD_ALLREDUCE)
    result = take_tensor(handle, &memory);
  else
    Py_INCREF(result = args[1]);
  if (handle) lib.release(handle);
  return result;
}

PyMethodDef call_methods[] = {
    {"allreduce_in_place", FAST(py_allreduce_in_place), METH_FASTCALL,
     "allreduce_in_place(pending, tensor, name, average, op, prescale, postscale, process set) -> handle or None"},
    {"finish_tensor", FAST(py_finish_tensor), METH_FASTCALL,
     "finish_tensor(pending, handle, before_waiting) -> result or None"},
    {"exchange_now", FAST(py_exchange_now), METH_FASTCALL,
     "exchange_now(kind, tensor, name, op, prescale, postscale, process set, before_waiting) -> result or None"},
    {NULL, NULL, 0, NULL}};
