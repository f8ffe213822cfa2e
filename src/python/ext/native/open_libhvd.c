/* open_libhvd.c — opens libhvd, and converts its failures into exceptions. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "native.h"

hvd_functions lib;

/* Set in the child of a fork() that happened while the runtime ran: its thread and shared memory are the parent's. */
static int forked;

static void after_fork_in_child(void) {
  if (lib.library && lib.is_initialized()) forked = 1;
}

static int bind(const char* path, const char* name, void* slot) {
  void* symbol = dlsym(lib.library, name);
  if (!symbol) {
    PyErr_Format(PyExc_ImportError, "%s lacks %s: it belongs to another version of hvdrun", path, name);
    return -1;
  }
  memcpy(slot, &symbol, sizeof symbol);
  return 0;
}

/* The folder of this module followed by name, into path [size]. Empty if it is unknown. */
static void beside_this_module(const char* name, char* path, size_t size) {
  Dl_info info;
  path[0] = 0;
  if (!dladdr((void*)(uintptr_t)&beside_this_module, &info) || !info.dli_fname) return;
  const char* slash = strrchr(info.dli_fname, '/');
  if (!slash || (size_t)(slash - info.dli_fname) + strlen(name) + 2 > size) return;
  const size_t folder = (size_t)(slash - info.dli_fname) + 1;
  memcpy(path, info.dli_fname, folder);
  strcpy(path + folder, name);
}

int open_library(void) {
  char beside[4096];
  const char* path = hvd_environment_value("HVD_LIBRARY");
  if (!path || !*path) {
    beside_this_module("libhvd.so", beside, sizeof beside);
    path = *beside ? beside : "libhvd.so";
  }
  lib.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib.library) {
    PyErr_Format(PyExc_ImportError, "cannot load libhvd: %s (set HVD_LIBRARY to its path, or reinstall hvdrun)",
                 dlerror());
    return -1;
  }
  if (bind(path, "hvd_init", &lib.init) || bind(path, "hvd_shutdown", &lib.shutdown) ||
      bind(path, "hvd_is_initialized", &lib.is_initialized) || bind(path, "hvd_get_world", &lib.get_world) ||
      bind(path, "hvd_expect", &lib.expect) || bind(path, "hvd_submit", &lib.submit) ||
      bind(path, "hvd_submit_and_wait", &lib.submit_and_wait) || bind(path, "hvd_submit_many", &lib.submit_many) ||
      bind(path, "hvd_poll", &lib.poll) || bind(path, "hvd_wait", &lib.wait) ||
      bind(path, "hvd_wait_many", &lib.wait_many) || bind(path, "hvd_release_many", &lib.release_many) ||
      bind(path, "hvd_take", &lib.take) || bind(path, "hvd_take_splits", &lib.take_splits) ||
      bind(path, "hvd_alloc", &lib.alloc) || bind(path, "hvd_free", &lib.free) ||
      bind(path, "hvd_release", &lib.release) || bind(path, "hvd_join_result", &lib.join_result) ||
      bind(path, "hvd_set_add", &lib.set_add) || bind(path, "hvd_set_remove", &lib.set_remove) ||
      bind(path, "hvd_timeline_start", &lib.timeline_start) || bind(path, "hvd_timeline_stop", &lib.timeline_stop) ||
      bind(path, "hvd_built", &lib.built) || bind(path, "hvd_use_memory", &lib.use_memory) ||
      bind(path, "hvd_departed", &lib.departed) || bind(path, "hvd_check_world", &lib.check_world) ||
      bind(path, "hvd_part_begin", &lib.part_begin) || bind(path, "hvd_part_end", &lib.part_end) ||
      bind(path, "hvd_step_end", &lib.step_end) || bind(path, "hvd_batches_made", &lib.batches_made) ||
      bind(path, "hvd_report", &lib.report) || bind(path, "hvd_links", &lib.links) ||
      bind(path, "hvd_not_finite", &lib.not_finite) || bind(path, "hvd_hash", &lib.hash) ||
      bind(path, "hvd_last_error", &lib.last_error) || bind(path, "hvd_version", &lib.version))
    return -1;
  pthread_atfork(NULL, NULL, after_fork_in_child);
  return 0;
}

PyObject* capturing_error;

PyObject* raise_text(int status, const char* text) {
  if (status == HVD_USAGE || status == HVD_CAPTURING) {
    PyErr_SetString(status == HVD_USAGE ? PyExc_ValueError : capturing_error, text);
    return NULL;
  }
  PyObject* module = PyImport_ImportModule("hvd.exceptions");
  if (!module) return NULL;
  PyObject* made = PyObject_CallMethod(module, "from_status", "is", status, text);
  Py_DECREF(module);
  if (!made) return NULL;
  PyErr_SetObject((PyObject*)Py_TYPE(made), made);
  Py_DECREF(made);
  return NULL;
}

PyObject* raise_status(int status) {
  const char* text = lib.last_error();
  return raise_text(status, text && *text ? text : "the runtime failed without a message");
}

int is_forked_child(void) { return forked; }

int usable(void) {
  if (!forked) return 0;
  PyErr_SetString(PyExc_ValueError,
                  "this process was forked after hvd.init(), and only its parent is a rank "
                  "(call hvd there alone, or fork before hvd.init())");
  return -1;
}

/* Owned; NULL: there is none. Changed and taken under the lock, which no thread holds while it runs Python code. */
static _Atomic(PyObject*) before_use;
static pthread_mutex_t before_use_lock = PTHREAD_MUTEX_INITIALIZER;

/* before_use(callable | None): the function that a call calls first if it needs the world. */
PyObject* py_before_use(PyObject* self, PyObject* callable) {
  (void)self;
  PyObject* next = callable == Py_None ? NULL : callable;
  Py_XINCREF(next);
  pthread_mutex_lock(&before_use_lock);
  PyObject* old = atomic_exchange(&before_use, next);
  pthread_mutex_unlock(&before_use_lock);
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

int usable_in_world(void) {
  if (usable()) return -1;
  if (!atomic_load_explicit(&before_use, memory_order_relaxed)) return 0;
  pthread_mutex_lock(&before_use_lock);
  PyObject* call = before_use; /* it may remove itself */
  Py_XINCREF(call);
  pthread_mutex_unlock(&before_use_lock);
  if (!call) return 0;
  PyObject* done = PyObject_CallObject(call, NULL);
  Py_DECREF(call);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

PyObject* wrong_count(const char* what, Py_ssize_t count) {
  return PyErr_Format(PyExc_TypeError, "%s: wrong number of arguments (%zd)", what, count);
}
