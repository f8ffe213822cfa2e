/* group_calls.c — allreduces of several tensors in one call (see tensor_calls.c). */
#include <stdlib.h>
#include <string.h>

#include "tensor_calls.h"

/* All allocations of a group's submission. */
typedef struct group {
  size_t count, named;
  hvd_request* requests;
  name_box* names;
  hvd_handle* handles;
} group;

static void free_group(group* all) {
  for (size_t i = 0; i < all->named; ++i) free(all->names[i].there);
  free(all->requests);
  free(all->names);
  free(all->handles);
}

/* The group's name, [length]; NULL: none was given. */
typedef struct group_name {
  const char* text;
  size_t length;
} group_name;

/* 1; 0: Python must refuse it; -1 with an exception. */
static int read_group_name(PyObject* name, group_name* found) {
  if (name == Py_None) return 1;
  Py_ssize_t length = 0;
  found->text = PyUnicode_AsUTF8AndSize(name, &length);
  found->length = (size_t)length;
  return !found->text ? -1 : !memchr(found->text, 0, found->length);
}

/* 1: filled.  0: Python must do it.  -1 with an exception. */
static int fill_group(group* all, const hvd_request* shared, PyObject* tensors, const group_name* name,
                      PyObject* devices) {
  for (size_t i = 0; i < all->count; ++i) {
    tensor_memory memory;
    if (!read_tensor(PyTuple_GetItem(tensors, (Py_ssize_t)i), &memory) || !lies_by_rows(&memory)) return 0;
    all->requests[i] = *shared;
    fill_memory(&all->requests[i], &memory);
    all->requests[i].out = memory.data;
    if (fill_member_name(&all->names[i], shared->kind, name->text, name->length, i)) return -1;
    ++all->named;
    all->requests[i].name = all->names[i].text;
    const hvd_request *mine = &all->requests[i], *last = &all->requests[i ? i - 1 : 0];
    const int is_new = i == 0 || mine->device != last->device || mine->stream != last->stream;
    if (mine->device == HVD_HOST_DEVICE || !is_new) continue;
    PyObject* device = Py_BuildValue("(iN)", (int)memory.device, PyLong_FromVoidPtr(memory.stream));
    const int failed = !device || PySet_Add(devices, device);
    Py_XDECREF(device);
    if (failed) return -1;
  }
  return 1;
}

static PyObject* submitted_group(group* all, PyObject* devices) {
  int recorded;
  const int status = submit_requests(all->requests, all->count, HVD_GROUP, all->handles, &recorded);
  if (status != HVD_OK) return raise_status(status);
  submitted(all->handles[0]);
  PyObject* handles = PyList_New((Py_ssize_t)all->count);
  for (size_t i = 0; handles && i < all->count; ++i)
    PyList_SetItem(handles, (Py_ssize_t)i, PyLong_FromLongLong(all->handles[i]));
  return handles ? Py_BuildValue("(NO)", handles, devices) : NULL;
}

/* allreduce_group(tensors, name, average, op, prescale, postscale, process set) -> ([handle], {(gpu, stream)}): all in
 * place; they become ready and run together. */
static PyObject* py_allreduce_group(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 7) return wrong_count("allreduce_group", count);
  const call_options options = {args[1], args[2], args[3], args[4], args[5], args[6]};
  hvd_request shared;
  const int is_named = options.name == Py_None || PyUnicode_CheckExact(options.name);
  if (!is_named || !PyList_CheckExact(args[0]) || !fill_options(&shared, HVD_ALLREDUCE, &options) ||
      PyList_Size(args[0]) == 0)
    Py_RETURN_NONE;
  group_name name = {NULL, 0};
  const int is_fit = read_group_name(options.name, &name);
  if (is_fit == 0) Py_RETURN_NONE;
  if (is_fit < 0 || usable_in_world()) return NULL;
  PyObject* tensors = PyList_AsTuple(args[0]); /* until the end: requests point to their shapes */
  if (!tensors) return NULL;
  group all = {(size_t)PyTuple_Size(tensors), 0, NULL, NULL, NULL};
  all.requests = malloc((all.count + 1) * sizeof *all.requests);
  all.names = malloc((all.count + 1) * sizeof *all.names);
  all.handles = malloc((all.count + 1) * sizeof *all.handles);
  PyObject* devices = PySet_New(NULL);
  PyObject* result = NULL;
  if (!all.requests || !all.names || !all.handles) {
    PyErr_NoMemory();
  } else if (devices) {
    const int filled = all.count ? fill_group(&all, &shared, tensors, &name, devices) : 0;
    if (filled == 1) {
      result = submitted_group(&all, devices);
    } else if (filled == 0) {
      result = Py_None;
      Py_INCREF(result);
    }
  }
  Py_XDECREF(devices);
  free_group(&all);
  Py_DECREF(tensors);
  return result;
}

PyMethodDef group_call_methods[] = {
    {"allreduce_group", FAST(py_allreduce_group), METH_FASTCALL,
     "allreduce_group([tensor], name, average, op, prescale, postscale, process set) -> ([handle], devices) or None"},
    {NULL, NULL, 0, NULL}};
