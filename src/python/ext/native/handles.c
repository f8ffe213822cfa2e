/* handles.c — operations in progress: poll, wait, release. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "native.h"

#define SLICE_SECONDS 0.1

/* poll() directly after a submission returns false, even if the operation has ended. Some scripts treat a poll() that
 * is always true as a sign of blocking calls. So the first poll of the newest handle, soon after its submission,
 * returns false. */
#define YOUNG_NS 10000000
static _Atomic hvd_handle newest; /* 0: polled already */
static _Atomic int64_t newest_since_ns;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void submitted(hvd_handle handle) {
  atomic_store_explicit(&newest_since_ns, now_ns(), memory_order_relaxed);
  atomic_store_explicit(&newest, handle, memory_order_release);
}

static int right_after(hvd_handle handle) {
  if (handle != atomic_load_explicit(&newest, memory_order_acquire)) return 0;
  atomic_compare_exchange_strong(&newest, &handle, 0);
  return now_ns() - atomic_load_explicit(&newest_since_ns, memory_order_relaxed) < YOUNG_NS;
}

/* Returns 0 if the operation has ended: *status has the outcome, and last_error is the operation's. Returns 1 if it has
 * not ended within `seconds`. Returns -1 if a signal handler raised; the operation is then still in progress. */
static int wait_for_seconds(hvd_handle handle, double seconds, int* status) {
  int done = 0;
  *status = lib.poll(handle, &done);
  if (*status != HVD_OK) return 0;
  if (done) { /* no release of the GIL for an operation that has already ended */
    *status = lib.wait(handle, 0);
    return 0;
  }
  for (;;) {
    const double slice = seconds < SLICE_SECONDS ? seconds : SLICE_SECONDS;
    Py_BEGIN_ALLOW_THREADS;
    *status = lib.wait(handle, slice);
    Py_END_ALLOW_THREADS;
    if (*status != HVD_TIMEOUT) return 0;
    /* an operation may itself have ended with a timeout */
    if (lib.poll(handle, &done) != HVD_OK || done) {
      *status = lib.wait(handle, 0);
      return 0;
    }
    if (PyErr_CheckSignals()) return -1;
    seconds -= slice;
    if (seconds <= 0) return 1;
  }
}

int wait_for_handle(hvd_handle handle, int* status) { return wait_for_seconds(handle, HUGE_VAL, status); }

int submit_and_wait(const hvd_request* request, hvd_handle* handle, int* status) {
  Py_BEGIN_ALLOW_THREADS;
  *status = lib.submit_and_wait(request, SLICE_SECONDS, handle);
  Py_END_ALLOW_THREADS;
  return *handle && *status == HVD_TIMEOUT ? wait_for_handle(*handle, status) : 0;
}

int finish_handle(hvd_handle handle) {
  int status = HVD_OK;
  if (wait_for_handle(handle, &status)) return -1;
  if (status == HVD_OK) {
    lib.release(handle);
    return 0;
  }
  raise_status(status);
  lib.release(handle);
  return -1;
}

int handle_of(PyObject* object, hvd_handle* handle) {
  if (int64_of(object, "handle", handle) || usable()) return -1;
  if (*handle < 0) *handle = -*handle; /* of an operation that was recorded */
  return 0;
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
  if (handle_of(arg, &handle) || wait_for_handle(handle, &status)) return NULL;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

/* wait_within(handle, seconds) -> whether it has ended. The handle stays valid. */
static PyObject* py_wait_within(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  hvd_handle handle;
  int status = HVD_OK;
  if (count != 2) return wrong_count("wait_within", count);
  if (handle_of(args[0], &handle)) return NULL;
  const double seconds = PyFloat_AsDouble(args[1]);
  if (seconds == -1.0 && PyErr_Occurred()) return NULL;
  const int waited = wait_for_seconds(handle, seconds, &status);
  if (waited < 0) return NULL;
  if (waited == 0 && status != HVD_OK) return raise_status(status);
  return PyBool_FromLong(waited == 0);
}

static PyObject* py_finish(PyObject* self, PyObject* arg) {
  (void)self;
  hvd_handle handle;
  if (handle_of(arg, &handle) || finish_handle(handle)) return NULL;
  Py_RETURN_NONE;
}

/* wait_for_handle() for all of them; *status: of the first that failed. */
static int wait_for_all(const hvd_handle* handles, size_t count, int* status) {
  int done = 0;
  if (lib.poll(handles[count - 1], &done) == HVD_OK && done) { /* all have ended: the GIL is not released */
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

int finish_handles(const hvd_handle* handles, size_t count) {
  int status = HVD_OK;
  if (count == 0) return 0;
  if (wait_for_all(handles, count, &status)) return -1;
  if (status != HVD_OK) raise_status(status);
  lib.release_many(handles, count);
  return status == HVD_OK ? 0 : -1;
}

static PyObject* py_finish_many(PyObject* self, PyObject* arg) {
  (void)self;
  if (!PyList_Check(arg)) return wrong_count("finish_many", 1);
  PyObject* items = PyList_AsTuple(arg);
  if (!items) return NULL;
  const size_t total = (size_t)PyTuple_Size(items);
  hvd_handle* handles = malloc((total + 1) * sizeof *handles);
  size_t known = 0;
  while (handles && known < total && handle_of(PyTuple_GetItem(items, (Py_ssize_t)known), &handles[known]) == 0)
    ++known;
  Py_DECREF(items);
  if (!handles) return PyErr_NoMemory();
  const int failed = known < total || finish_handles(handles, total);
  free(handles);
  if (failed) return NULL;
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

PyMethodDef handle_methods[] = {
    {"poll", py_poll, METH_O, "poll(handle) -> bool"},
    {"wait", py_wait, METH_O, "wait(handle): until it has ended"},
    {"finish", py_finish, METH_O, "finish(handle): wait, forget"},
    {"finish_many", py_finish_many, METH_O, "finish_many([handle, ...])"},
    {"release", py_release, METH_O, "release(handle)"},
    {"wait_within", FAST(py_wait_within), METH_FASTCALL, "wait_within(handle, seconds) -> ended"},
    {NULL, NULL, 0, NULL}};
