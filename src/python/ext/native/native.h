/* native.h — the common parts of the files of hvd._native.
 *
 * Limited API of CPython 3.9, so that one binary serves every later version. An interpreter without a GIL gets a binary
 * of its own, since its limited API begins with CPython 3.15.
 * libhvd is opened at import. libhvd links neither Python nor MPI, and this module links neither libhvd nor a
 * framework. A tensor arrives here as a Request of hvd/_runtime/requests.py: an address, a dtype number, a shape.
 * hvd/_runtime/submission.py is the main caller.
 *
 * Threads: submit, poll and release keep the GIL, since they return at once; init, shutdown, timelines and all waits
 * release it. A wait checks for signals every 100 ms, so that Ctrl-C works while peers are missing.
 *
 * The GIL protects the state of this module. Without a GIL, BEGIN_ALONE(object) to END_ALONE() does the same for the
 * state that belongs to the object: the thread lets go of it where it would give the GIL away, in Python code and in
 * waits. Numbers alone are atomic. A list of the caller's is copied to a tuple first, since other threads may change
 * it.
 */
#ifndef HVD_PYTHON_NATIVE_H
#define HVD_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#if !defined Py_LIMITED_API && !defined Py_GIL_DISABLED
#define Py_LIMITED_API 0x03090000
#endif
#include <Python.h>
#include <stdatomic.h>
#include <structmember.h>

#include "hvd/hvd.h"

/* In the stable ABI since 3.10; CPython 3.9 has both with the same layout and
 * signature, but its limited headers hide them. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
#if defined Py_LIMITED_API && Py_LIMITED_API + 0 < 0x030a0000
PyAPI_FUNC(const char*) PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*);
#endif

#ifdef Py_GIL_DISABLED
#define BEGIN_ALONE(object) Py_BEGIN_CRITICAL_SECTION(object)
#define END_ALONE() Py_END_CRITICAL_SECTION()
#else
#define BEGIN_ALONE(object) {
#define END_ALONE() }
#endif

#define FAST(function) ((PyCFunction)(void (*)(void))function)
#define MAX_DIMS 64

/* open_libhvd.c: the functions of libhvd. */
typedef struct hvd_functions {
  void* library;
  int (*init)(const hvd_init_options*);
  int (*shutdown)(void);
  int (*is_initialized)(void);
  int (*get_world)(hvd_world*);
  int (*expect)(hvd_world*);
  int (*submit)(const hvd_request*, hvd_handle*);
  int (*submit_and_wait)(const hvd_request*, double, hvd_handle*);
  int (*submit_many)(const hvd_request*, size_t, uint32_t, hvd_handle*);
  int (*poll)(hvd_handle, int*);
  int (*wait)(hvd_handle, double);
  int (*wait_many)(const hvd_handle*, size_t, double);
  int (*take)(hvd_handle, void**, int64_t*, int32_t*);
  int (*take_splits)(hvd_handle, int64_t*);
  int (*alloc)(size_t, void**);
  void (*free)(void*);
  int (*release)(hvd_handle);
  int (*release_many)(const hvd_handle*, size_t);
  int (*join_result)(hvd_handle, int32_t*);
  int (*set_add)(const int32_t*, int32_t, int32_t*);
  int (*set_remove)(int32_t);
  int (*timeline_start)(const char*, int);
  int (*timeline_stop)(void);
  int (*built)(const char*);
  int (*use_memory)(const char*);
  int (*departed)(void);
  int (*check_world)(void);
  int (*not_finite)(char*, size_t, size_t*);
  uint64_t (*hash)(const void*, size_t);
  void (*part_begin)(int);
  void (*part_end)(int);
  void (*step_end)(void);
  void (*batches_made)(int64_t);
  int (*report)(char*, size_t, size_t*);
  int (*links)(hvd_link*, size_t, size_t*);
  const char* (*last_error)(void);
  const char* (*version)(void);
} hvd_functions;
extern hvd_functions lib;

/* Opens HVD_LIBRARY, or the libhvd.so beside this module.  0, or -1 with ImportError. */
int open_library(void);

/* Sets the exception for a failed status, with hvd_last_error()'s text.  Always NULL. */
PyObject* raise_status(int status);
/* hvd._native.Capturing, a ValueError: HVD_CAPTURING. */
extern PyObject* capturing_error;
PyObject* raise_text(int status, const char* text);
PyObject* wrong_count(const char* what, Py_ssize_t count);

/* 1 in the child of a fork() that happened while the runtime ran: the runtime's thread and shared memory are the
 * parent's. */
int is_forked_child(void);

/* Returns 1 if the field is neither NULL nor None. */
static inline int is_set(PyObject* field) { return field && field != Py_None; }

/* Returns 0 if this process may call the runtime, else -1 with ValueError. */
int usable(void);

/* The check of calls that need the world: calls the callable of before_use(), then usable(). Returns -1 with the
 * exception of either. */
int usable_in_world(void);
PyObject* py_before_use(PyObject* self, PyObject* callable);

/* objects.c: returns the object of a weak reference, owned. NULL without an exception: the object is gone, or weak is
 * None. */
PyObject* strong(PyObject* weak);

/* dictionary[key], owned. NULL without an exception: it is not there. */
PyObject* value_of(PyObject* dictionary, PyObject* key);

/* 0, or -1 with ValueError for a number that is too large, TypeError for no number.  what: for the message.
 */
int int32_of(PyObject* value, const char* what, int32_t* number);
int int64_of(PyObject* value, const char* what, int64_t* number);

/* handles.c */

/* 0, or -1 with an exception. */
int handle_of(PyObject* object, hvd_handle* handle);

/* Notes a new handle: a first poll() that comes at once returns False. */
void submitted(hvd_handle handle);

/* module.c: names of attributes, interned: looking one up by a C string costs more than the attribute. */
typedef struct attribute_names {
  PyObject *grad, *process_set_id, *layout;
} attribute_names;
extern attribute_names attributes;

/* Submits and waits for the end; *status: of both.  *handle: 0 if nothing was submitted.  0, or -1 with a signal's
 * exception. */
int submit_and_wait(const hvd_request* request, hvd_handle* handle, int* status);

/* Waits for the end; *status: the operation's.  0, or -1 with a signal's exception. */
int wait_for_handle(hvd_handle handle, int* status);

/* Waits for the end and releases the handles. 0, or -1 with an exception: the first failure, after the last one has
 * ended. After a signal's exception all handles stay valid. */
int finish_handle(hvd_handle handle);
int finish_handles(const hvd_handle* handles, size_t count);

/* gradient.c, gradient_outbox.c: the types Gradient and Outbox.  0, or -1 with an exception. */
int add_gradient_types(PyObject* module);

extern PyMethodDef backward_methods[];
extern PyMethodDef call_methods[];
extern PyMethodDef gradient_methods[];
extern PyMethodDef group_call_methods[];
extern PyMethodDef request_methods[];
extern PyMethodDef handle_methods[];
extern PyMethodDef result_methods[];
extern PyMethodDef tensor_methods[];
extern PyMethodDef world_methods[];

#endif
