/* requests.c — converts a Request (hvd/_runtime/requests.py) into an hvd_request. */
#include "requests.h"

#include <stdlib.h>
#include <string.h>

/* A Request and its two parts are tuples, with these fields. */
enum { OPERATION, NAME, VIEW, OUT, SPLITS, REQUEST_FIELDS };
enum { KIND, SET, REDUCE, ROOT, PRESCALE, POSTSCALE, OPERATION_FIELDS };
enum { ADDRESS, DTYPE, SHAPE, DEVICE, VIEW_FIELDS };

#define KIND_NAME(enumerator, number, word, name) name,
static const char* const kind_names[] = {HVD_KINDS(KIND_NAME)};
#undef KIND_NAME

void free_box(request_box* box) {
  free(box->name.there);
  free(box->splits);
}

/* Writes ".NUMBER" with its zero byte, and returns its length without that byte.  to: room for 24 bytes. */
static size_t write_number(char* to, unsigned long long number) {
  char reversed[24];
  size_t digits = 0, length = 0;
  do reversed[digits++] = (char)('0' + number % 10);
  while (number /= 10);
  to[length++] = '.';
  while (digits) to[length++] = reversed[--digits];
  to[length] = 0;
  return length;
}

/* KIND.TEXT, or KIND.TEXT.MEMBER with member >= 0.  0, or -1 with an exception. */
static int compose_name(name_box* box, int kind, const char* text, size_t length, long long member) {
  char number[24] = "";
  const size_t digits = member < 0 ? 0 : write_number(number, (unsigned long long)member);
  const size_t front = strlen(kind_names[kind]);
  const size_t total = front + 1 + length + digits + 1;
  char* to = box->here;
  if (total > sizeof box->here) {
    to = box->there = malloc(total);
    if (!to) {
      PyErr_NoMemory();
      return -1;
    }
  }
  memcpy(to, kind_names[kind], front);
  to[front] = '.';
  memcpy(to + front + 1, text, length);
  memcpy(to + front + 1 + length, number, digits + 1);
  box->text = to;
  return 0;
}

int fill_name(name_box* box, int kind, PyObject* name) {
  box->text = box->there = NULL;
  if (name == Py_None) return 0;
  if (PyBytes_Check(name)) { /* unchanged: calls that are matched by their order share one name, of any kind */
    box->text = PyBytes_AsString(name);
    return 0;
  }
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "name is %R: it must be a string", name);
    return -1;
  }
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &length);
  if (!text) return -1;
  if (memchr(text, 0, (size_t)length)) {
    PyErr_Format(PyExc_ValueError, "name is %R: it must not contain a NUL character", name);
    return -1;
  }
  return compose_name(box, kind, text, (size_t)length, -1);
}

int fill_member_name(name_box* box, int kind, const char* text, size_t length, size_t member) {
  box->text = box->there = NULL;
  return text ? compose_name(box, kind, text, length, (long long)member) : 0;
}

static int fill_shape(request_box* box, PyObject* shape) {
  if (!PyTuple_Check(shape)) {
    PyErr_SetString(PyExc_TypeError, "shape must be a tuple");
    return -1;
  }
  const Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim > MAX_DIMS) {
    PyErr_Format(PyExc_ValueError, "a tensor has %zd dimensions, at most 64 are possible", ndim);
    return -1;
  }
  for (Py_ssize_t i = 0; i < ndim; ++i)
    if (int64_of(PyTuple_GetItem(shape, i), "a dimension", &box->shape[i])) return -1;
  box->request.shape = box->shape;
  box->request.ndim = (int32_t)ndim;
  return 0;
}

/* splits: a tuple of integers, or None. */
static int fill_splits(request_box* box, PyObject* splits) {
  if (splits == Py_None) return 0;
  const Py_ssize_t count = PyTuple_Check(splits) ? PyTuple_Size(splits) : -1;
  if (count < 0 || count > INT32_MAX) {
    PyErr_SetString(PyExc_TypeError, "splits must be a tuple");
    return -1;
  }
  box->splits = malloc(((size_t)count + 1) * sizeof *box->splits);
  if (!box->splits) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i)
    if (int64_of(PyTuple_GetItem(splits, i), "an element of splits", &box->splits[i])) return -1;
  box->request.splits = box->splits;
  box->request.num_splits = (int32_t)count;
  return 0;
}

static int fill_factor(PyObject* value, const char* what, double* factor) {
  *factor = PyFloat_AsDouble(value);
  if (*factor != -1.0 || !PyErr_Occurred()) return 0;
  PyErr_Format(PyExc_TypeError, "%s is %R: it must be a number", what, value);
  return -1;
}

/* A GPU and the stream that makes the tensor, or a device's number alone. */
static int fill_device(PyObject* device, hvd_request* r) {
  if (!PyTuple_Check(device) || PyTuple_Size(device) != 2) return int32_of(device, "device", &r->device);
  r->stream = PyLong_AsVoidPtr(PyTuple_GetItem(device, 1));
  return PyErr_Occurred() ? -1 : int32_of(PyTuple_GetItem(device, 0), "device", &r->device);
}

/* The memory of the result: an address, a bytearray, or an address and a number of bytes. */
static int fill_out(PyObject* out, hvd_request* r) {
  if (PyTuple_Check(out) && PyTuple_Size(out) == 2) {
    r->out = PyLong_AsVoidPtr(PyTuple_GetItem(out, 0));
    r->out_bytes = PyLong_AsSize_t(PyTuple_GetItem(out, 1));
  } else {
    r->out = PyByteArray_Check(out) ? PyByteArray_AsString(out) : PyLong_AsVoidPtr(out);
  }
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject* tuple_of(PyObject* object, Py_ssize_t fields, const char* what) {
  if (object && PyTuple_Check(object) && PyTuple_Size(object) == fields) return object;
  return PyErr_Format(PyExc_TypeError, "%s must be a tuple of %zd", what, fields);
}

int fill_operation(hvd_request* r, PyObject* operation) {
  if (!tuple_of(operation, OPERATION_FIELDS, "a request's operation")) return -1;
  if (int32_of(PyTuple_GetItem(operation, KIND), "kind", &r->kind) ||
      int32_of(PyTuple_GetItem(operation, REDUCE), "op", &r->reduce))
    return -1;
  if (r->kind < 0 || r->kind >= (int32_t)(sizeof kind_names / sizeof *kind_names)) {
    PyErr_SetString(PyExc_ValueError, "no such operation");
    return -1;
  }
  if (PyTuple_GetItem(operation, SET) == Py_None) {
    PyErr_SetString(PyExc_ValueError, "this process set does not exist (anymore): see add_process_set");
    return -1;
  }
  if (int32_of(PyTuple_GetItem(operation, SET), "process_set_id", &r->set) ||
      int32_of(PyTuple_GetItem(operation, ROOT), "root_rank", &r->root) ||
      fill_factor(PyTuple_GetItem(operation, PRESCALE), "prescale_factor", &r->prescale) ||
      fill_factor(PyTuple_GetItem(operation, POSTSCALE), "postscale_factor", &r->postscale))
    return -1;
  settle_factors(r);
  return 0;
}

void settle_factors(hvd_request* r) {
  if (r->prescale == 0 && r->postscale == 0) r->postscale = 1;
}

int fill_request(request_box* box, PyObject* tuple) {
  hvd_request* r = &box->request;
  memset(r, 0, sizeof *r);
  box->splits = NULL;
  box->name.there = NULL;
  PyObject* view;
  if (!tuple_of(tuple, REQUEST_FIELDS, "a request") || fill_operation(r, PyTuple_GetItem(tuple, OPERATION)) ||
      !(view = tuple_of(PyTuple_GetItem(tuple, VIEW), VIEW_FIELDS, "a request's view")))
    return -1;
  r->struct_size = sizeof *r;
  PyObject* address = PyTuple_GetItem(view, ADDRESS);
  r->in = PyBytes_Check(address)       ? PyBytes_AsString(address)
          : PyByteArray_Check(address) ? PyByteArray_AsString(address)
                                       : PyLong_AsVoidPtr(address);
  if (PyErr_Occurred() || fill_out(PyTuple_GetItem(tuple, OUT), r) ||
      int32_of(PyTuple_GetItem(view, DTYPE), "dtype", &r->dtype) || fill_device(PyTuple_GetItem(view, DEVICE), r) ||
      fill_shape(box, PyTuple_GetItem(view, SHAPE)) || fill_name(&box->name, r->kind, PyTuple_GetItem(tuple, NAME)) ||
      fill_splits(box, PyTuple_GetItem(tuple, SPLITS)))
    return -1;
  r->name = box->name.text;
  return 0;
}

int submit_requests(const hvd_request* requests, size_t count, uint32_t flags, hvd_handle* handles, int* recorded) {
  int status =
      count == 1 && flags == 0 ? lib.submit(requests, handles) : lib.submit_many(requests, count, flags, handles);
  *recorded = 0;
  if (status != HVD_CAPTURING) return status;
  for (size_t i = 0; i < count; ++i)
    if (!requests[i].out && requests[i].kind != HVD_ALLREDUCE && requests[i].kind != HVD_BROADCAST) return status;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.submit_many(requests, count, flags | HVD_CAPTURE, handles);
  Py_END_ALLOW_THREADS;
  *recorded = status == HVD_OK;
  return status;
}

static PyObject* py_submit(PyObject* self, PyObject* tuple) {
  (void)self;
  request_box box;
  hvd_handle handle = 0;
  int recorded = 0;
  if (usable_in_world()) return NULL;
  const int filled = fill_request(&box, tuple);
  const int status = filled == 0 ? submit_requests(&box.request, 1, 0, &handle, &recorded) : HVD_OK;
  free_box(&box);
  if (filled) return NULL;
  if (status != HVD_OK) return raise_status(status);
  submitted(handle);
  return PyLong_FromLongLong(recorded ? -handle : handle);
}

static PyObject* submit_boxes(request_box* boxes, hvd_request* requests, hvd_handle* handles, PyObject* items,
                              Py_ssize_t total, uint32_t flags, Py_ssize_t* filled) {
  while (*filled < total) {
    request_box* box = &boxes[*filled];
    const int failed = fill_request(box, PyTuple_GetItem(items, *filled));
    requests[(*filled)++] = box->request;
    if (failed) return NULL;
  }
  int recorded;
  const int status = submit_requests(requests, (size_t)total, flags, handles, &recorded);
  if (status != HVD_OK) return raise_status(status);
  submitted(handles[0]);
  PyObject* result = PyList_New(total);
  for (Py_ssize_t i = 0; result && i < total; ++i)
    PyList_SetItem(result, i, PyLong_FromLongLong(recorded ? -handles[i] : handles[i]));
  return result;
}

static PyObject* py_submit_many(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 2 || !PyList_Check(args[0])) return wrong_count("submit_many", count);
  const int together = PyObject_IsTrue(args[1]);
  if (together < 0 || usable_in_world()) return NULL;
  PyObject* items = PyList_AsTuple(args[0]); /* until the end: requests point into names and bytes */
  const Py_ssize_t total = items ? PyTuple_Size(items) : -1;
  if (total <= 0) {
    Py_XDECREF(items);
    return total ? NULL : PyList_New(0);
  }
  request_box* boxes = malloc((size_t)total * sizeof *boxes);
  hvd_request* requests = malloc((size_t)total * sizeof *requests);
  hvd_handle* handles = malloc((size_t)total * sizeof *handles);
  Py_ssize_t filled = 0;
  PyObject* result = NULL;
  if (boxes && requests && handles)
    result = submit_boxes(boxes, requests, handles, items, total, together ? HVD_GROUP : 0, &filled);
  else
    PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < filled; ++i) free_box(&boxes[i]);
  free(boxes);
  free(requests);
  free(handles);
  Py_DECREF(items);
  return result;
}

PyMethodDef request_methods[] = {
    {"submit", py_submit, METH_O,
     "submit(request) -> handle; negative: recorded in a CUDA graph, and there is no wait"},
    {"submit_many", FAST(py_submit_many), METH_FASTCALL,
     "submit_many([request, ...], together) -> [handle, ...].  together: they become ready, and run, together"},
    {NULL, NULL, 0, NULL}};
