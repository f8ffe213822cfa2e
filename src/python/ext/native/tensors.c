/* tensors.c — what is called for every tensor: submit, wait, forget. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "native.h"

#define SLICE_SECONDS 0.1
#define REQUEST_ARGS 12
static const char* const kind_names[] = {"allreduce",     "allgather", "broadcast", "alltoall",
                                         "reducescatter", "barrier",   "join"};

/* A request and the memory that it points to. */
typedef struct request_box {
  hvd_request request;
  int64_t shape[MAX_DIMS];
  name_box name;
  int64_t* splits; /* malloc'd, or NULL */
} request_box;

/* poll() right after a call is false, however fast the others were: scripts take "always true" for "not asynchronous".
 * So the first look at the newest handle, soon after its submission, is.  Under the GIL. */
#define YOUNG_NS 10000000
static struct {
  hvd_handle handle; /* 0: looked at already */
  int64_t since_ns;
} newest;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void submitted(hvd_handle handle) {
  newest.handle = handle;
  newest.since_ns = now_ns();
}

static int right_after(hvd_handle handle) {
  if (handle != newest.handle) return 0;
  newest.handle = 0;
  return now_ns() - newest.since_ns < YOUNG_NS;
}

int fill_name(name_box* box, int kind, PyObject* name) {
  box->text = box->there = NULL;
  if (name == Py_None) return 0;
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
  const size_t front = strlen(kind_names[kind]);
  const size_t total = front + (size_t)length + 2;
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
  memcpy(to + front + 1, text, (size_t)length + 1);
  box->text = to;
  return 0;
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
  for (Py_ssize_t i = 0; i < ndim; ++i) box->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
  box->request.shape = box->shape;
  box->request.ndim = (int32_t)ndim;
  return PyErr_Occurred() ? -1 : 0;
}

static void free_box(request_box* box) {
  free(box->name.there);
  free(box->splits);
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
  for (Py_ssize_t i = 0; i < count; ++i) box->splits[i] = PyLong_AsLongLong(PyTuple_GetItem(splits, i));
  box->request.splits = box->splits;
  box->request.num_splits = (int32_t)count;
  return PyErr_Occurred() ? -1 : 0;
}

static int fill_factor(PyObject* value, const char* what, double* factor) {
  *factor = PyFloat_AsDouble(value);
  if (*factor != -1.0 || !PyErr_Occurred()) return 0;
  PyErr_Format(PyExc_TypeError, "%s is %R: it must be a number", what, value);
  return -1;
}

/* A rank is an int32: what is beyond is no rank either, so that libhvd says so. */
static int fill_number(PyObject* value, const char* what, int32_t* number) {
  const long found = PyLong_AsLong(value);
  if (found == -1 && PyErr_Occurred()) {
    PyErr_Format(PyExc_TypeError, "%s is %R: it must be an integer", what, value);
    return -1;
  }
  *number = found < INT32_MIN || found > INT32_MAX ? -1 : (int32_t)found;
  return 0;
}

/* args: kind, dtype, reduce, name, shape, root, set, device, prescale, postscale, in, out. */
static int fill_request(request_box* box, PyObject* const* args) {
  hvd_request* r = &box->request;
  memset(r, 0, sizeof *r);
  box->splits = NULL;
  r->struct_size = sizeof *r;
  r->kind = (int32_t)PyLong_AsLong(args[0]);
  r->dtype = (int32_t)PyLong_AsLong(args[1]);
  r->reduce = (int32_t)PyLong_AsLong(args[2]);
  if (r->kind < 0 || r->kind > HVD_JOIN) {
    PyErr_SetString(PyExc_ValueError, "no such operation");
    return -1;
  }
  if (args[6] == Py_None) {
    PyErr_SetString(PyExc_ValueError, "this process set does not exist (anymore): see add_process_set");
    return -1;
  }
  if (fill_number(args[5], "root_rank", &r->root)) return -1;
  r->set = (int32_t)PyLong_AsLong(args[6]);
  if (PyTuple_Check(args[7]) && PyTuple_Size(args[7]) == 2) { /* a GPU, and the stream that makes the tensor */
    r->device = (int32_t)PyLong_AsLong(PyTuple_GetItem(args[7], 0));
    r->stream = PyLong_AsVoidPtr(PyTuple_GetItem(args[7], 1));
  } else {
    r->device = (int32_t)PyLong_AsLong(args[7]);
  }
  if (fill_factor(args[8], "prescale_factor", &r->prescale)) return -1;
  if (fill_factor(args[9], "postscale_factor", &r->postscale)) return -1;
  r->in = PyLong_AsVoidPtr(args[10]);
  r->out = PyLong_AsVoidPtr(args[11]);
  if (fill_shape(box, args[4])) return -1;
  if (fill_name(&box->name, r->kind, args[3])) return -1;
  r->name = box->name.text;
  return 0;
}

int wait_in_slices(hvd_handle handle, int* status) {
  int done = 0;
  *status = lib.poll(handle, &done);
  if (*status != HVD_OK) return 0;
  if (done) { /* no GIL hand-over for what has already ended */
    *status = lib.wait(handle, 0);
    return 0;
  }
  for (;;) {
    Py_BEGIN_ALLOW_THREADS;
    *status = lib.wait(handle, SLICE_SECONDS);
    Py_END_ALLOW_THREADS;
    if (*status != HVD_TIMEOUT) return 0;
    /* an operation may itself have ended with a timeout */
    if (lib.poll(handle, &done) != HVD_OK || done) {
      *status = lib.wait(handle, 0);
      return 0;
    }
    if (PyErr_CheckSignals()) return -1;
  }
}

int finish_handle(hvd_handle handle) {
  int status = HVD_OK;
  if (wait_in_slices(handle, &status)) return -2;
  if (status == HVD_OK) {
    lib.release(handle);
    return 0;
  }
  raise_status(status);
  lib.release(handle);
  return -1;
}

static PyObject* py_submit(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  request_box box;
  hvd_handle handle = 0;
  if (count != REQUEST_ARGS) return wrong_count("submit", count);
  if (usable() || fill_request(&box, args)) return NULL;
  const int status = lib.submit(&box.request, &handle);
  free(box.name.there);
  if (status != HVD_OK) return raise_status(status);
  submitted(handle);
  return PyLong_FromLongLong(handle);
}

static PyObject* submit_boxes(request_box* boxes, hvd_request* requests, hvd_handle* handles, PyObject* list,
                              Py_ssize_t total, uint32_t flags, Py_ssize_t* filled) {
  for (Py_ssize_t i = 0; i < total; ++i) {
    PyObject* item = PyList_GetItem(list, i);
    PyObject* args[REQUEST_ARGS];
    const Py_ssize_t length = item && PyTuple_Check(item) ? PyTuple_Size(item) : 0;
    if (length != REQUEST_ARGS && length != REQUEST_ARGS + 1) {
      PyErr_SetString(PyExc_TypeError, "submit_many: each request is a tuple of 12, or of 13 with splits");
      return NULL;
    }
    for (int k = 0; k < REQUEST_ARGS; ++k) args[k] = PyTuple_GetItem(item, k);
    if (fill_request(&boxes[i], args)) return NULL;
    *filled = i + 1;
    if (length > REQUEST_ARGS && fill_splits(&boxes[i], PyTuple_GetItem(item, REQUEST_ARGS))) return NULL;
    requests[i] = boxes[i].request;
  }
  const int status = lib.submit_many(requests, (size_t)total, flags, handles);
  if (status != HVD_OK) return raise_status(status);
  submitted(handles[0]);
  PyObject* result = PyList_New(total);
  for (Py_ssize_t i = 0; result && i < total; ++i) PyList_SetItem(result, i, PyLong_FromLongLong(handles[i]));
  return result;
}

static PyObject* py_submit_many(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 2 || !PyList_Check(args[0])) return wrong_count("submit_many", count);
  const uint32_t flags = (uint32_t)PyLong_AsUnsignedLong(args[1]);
  if (PyErr_Occurred() || usable()) return NULL;
  const Py_ssize_t total = PyList_Size(args[0]);
  if (total == 0) return PyList_New(0);
  request_box* boxes = malloc((size_t)total * sizeof *boxes);
  hvd_request* requests = malloc((size_t)total * sizeof *requests);
  hvd_handle* handles = malloc((size_t)total * sizeof *handles);
  Py_ssize_t filled = 0;
  PyObject* result = NULL;
  if (boxes && requests && handles)
    result = submit_boxes(boxes, requests, handles, args[0], total, flags, &filled);
  else
    PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < filled; ++i) free_box(&boxes[i]);
  free(boxes);
  free(requests);
  free(handles);
  return result;
}

/* The 13th argument is whatever owns the memory: when a signal ends the wait, the operation goes on, and its tensors
 * must outlive it, so they are never freed. */
static PyObject* py_run(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  request_box box;
  hvd_handle handle = 0;
  if (count != REQUEST_ARGS + 1) return wrong_count("run", count);
  if (usable() || fill_request(&box, args)) return NULL;
  const int status = lib.submit(&box.request, &handle);
  free(box.name.there);
  if (status != HVD_OK) return raise_status(status);
  const int ended = finish_handle(handle);
  if (ended == 0) Py_RETURN_NONE;
  if (ended == -2) {
    Py_INCREF(args[REQUEST_ARGS]);
    lib.release(handle);
  }
  return NULL;
}

int handle_of(PyObject* object, hvd_handle* handle) {
  *handle = PyLong_AsLongLong(object);
  return (*handle == -1 && PyErr_Occurred()) || usable() ? -1 : 0;
}

static PyObject* py_poll(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  int done = 0;
  if (handle_of(arg, &handle)) return NULL;
  const int status = lib.poll(handle, &done);
  return status == HVD_OK ? PyBool_FromLong(done && !right_after(handle)) : raise_status(status);
}

static PyObject* py_wait(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  int status = HVD_OK;
  if (handle_of(arg, &handle) || wait_in_slices(handle, &status)) return NULL;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_finish(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  if (handle_of(arg, &handle) || finish_handle(handle)) return NULL;
  Py_RETURN_NONE;
}

/* wait_in_slices() for all of them; *status: of the first that failed. */
static int wait_for_all(const hvd_handle* handles, size_t count, int* status) {
  int done = 0;
  if (lib.poll(handles[count - 1], &done) == HVD_OK && done) { /* no GIL hand-over for what has already ended */
    *status = lib.wait_many(handles, count, 0);
    if (*status != HVD_TIMEOUT) return 0;
  }
  for (;;) {
    Py_BEGIN_ALLOW_THREADS;
    *status = lib.wait_many(handles, count, SLICE_SECONDS);
    Py_END_ALLOW_THREADS;
    if (*status != HVD_TIMEOUT) return 0;
    /* an operation may itself have ended with a timeout */
    size_t ended = 0;
    while (ended < count && (lib.poll(handles[ended], &done) != HVD_OK || done)) ++ended;
    if (ended == count) {
      *status = lib.wait_many(handles, count, 0);
      return 0;
    }
    if (PyErr_CheckSignals()) return -1;
  }
}

/* Waits for all, then forgets all.  The first failure is raised after the last one has ended; a signal forgets none. */
static PyObject* py_finish_many(PyObject* self, PyObject* arg) {
  (void)self;
  if (!PyList_Check(arg)) return wrong_count("finish_many", 1);
  if (usable()) return NULL;
  const size_t total = (size_t)PyList_Size(arg);
  if (total == 0) Py_RETURN_NONE;
  hvd_handle* handles = malloc(total * sizeof *handles);
  if (!handles) return PyErr_NoMemory();
  for (size_t i = 0; i < total; ++i) handles[i] = PyLong_AsLongLong(PyList_GetItem(arg, (Py_ssize_t)i));
  int status = HVD_OK;
  if (PyErr_Occurred() || wait_for_all(handles, total, &status)) {
    free(handles);
    return NULL;
  }
  if (status != HVD_OK) raise_status(status);
  lib.release_many(handles, total);
  free(handles);
  if (status != HVD_OK) return NULL;
  Py_RETURN_NONE;
}

static PyObject* py_release(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  if (handle_of(arg, &handle)) return NULL;
  const int status = lib.release(handle);
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

PyMethodDef tensor_methods[] = {
    {"submit", FAST(py_submit), METH_FASTCALL,
     "submit(kind, dtype, reduce, name, shape, root, set, device, prescale, postscale, in, out) -> handle"},
    {"submit_many", FAST(py_submit_many), METH_FASTCALL, "submit_many([request, ...], flags) -> [handle, ...]"},
    {"run", FAST(py_run), METH_FASTCALL, "run(*request, owner): submit, wait, forget"},
    {"poll", py_poll, METH_O, "poll(handle) -> bool"},
    {"wait", py_wait, METH_O, "wait(handle): until it has ended"},
    {"finish", py_finish, METH_O, "finish(handle): wait, forget"},
    {"finish_many", py_finish_many, METH_O, "finish_many([handle, ...])"},
    {"release", py_release, METH_O, "release(handle)"},
    {NULL, NULL, 0, NULL}};
