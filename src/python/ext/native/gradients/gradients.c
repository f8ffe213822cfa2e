/* gradients.c — a reducer's operations on all of its gradients before a step, in one call each
 * (hvd/torch/_optimizer/reducer.py). */
#include <stdlib.h>

#include "gradient.h"

/* all[i], borrowed; NULL with an exception. */
static gradient* entry_of(PyObject* all, Py_ssize_t i) {
  PyObject* item = PyTuple_GetItem(all, i);
  if (item && PyObject_TypeCheck(item, (PyTypeObject*)gradient_type)) return (gradient*)item;
  PyErr_Format(PyExc_TypeError, "a Gradient is needed, not %R", item ? item : Py_None);
  return NULL;
}

/* The list's items as a tuple; NULL with an exception. */
static PyObject* all_of(PyObject* list) {
  if (PyList_Check(list)) return PyList_AsTuple(list);
  PyErr_SetString(PyExc_TypeError, "a list of Gradients is needed");
  return NULL;
}

/* A new list of the entries for which picks() returns 1. picks: -1 with an exception. */
static PyObject* picked(PyObject* list, int (*picks)(gradient* entry, void* context, Py_ssize_t index), void* context) {
  PyObject* all = all_of(list);
  PyObject* found = all ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; found && i < PyTuple_Size(all); ++i) {
    gradient* entry = entry_of(all, i);
    int status = -1;
    if (entry) {
      BEGIN_ALONE(entry);
      status = picks(entry, context, i);
      END_ALONE();
      if (status > 0) status = PyList_Append(found, (PyObject*)entry);
    }
    if (status) Py_CLEAR(found);
  }
  Py_XDECREF(all);
  return found;
}

/* Dense, submitted by its hook, and without a later pass. */
static int is_ordinary(const gradient* entry) { return entry->ordinary && !entry->more; }

static int has_begun(gradient* entry, void* context, Py_ssize_t index) {
  (void)context, (void)index;
  return entry->passes_left != entry->passes || is_set(entry->submitted);
}

static PyObject* py_passes_begun(PyObject* self, PyObject* list) {
  (void)self;
  PyObject* all = all_of(list);
  if (!all) return NULL;
  const Py_ssize_t count = PyTuple_Size(all);
  int begun = 0;
  for (Py_ssize_t i = 0; i < count && begun == 0; ++i) {
    gradient* entry = entry_of(all, i);
    begun = -1;
    if (!entry) break;
    BEGIN_ALONE(entry);
    begun = has_begun(entry, NULL, i);
    END_ALONE();
  }
  Py_DECREF(all);
  return begun < 0 ? NULL : PyBool_FromLong(begun);
}

static int is_extraordinary(gradient* entry, void* context, Py_ssize_t index) {
  (void)context, (void)index;
  return !is_ordinary(entry);
}

static PyObject* py_extraordinary(PyObject* self, PyObject* list) {
  (void)self;
  return picked(list, is_extraordinary, NULL);
}

/* Returns 1 if the result must be copied to parameter.grad. */
static int must_store(gradient* entry, void* context, Py_ssize_t index) {
  (void)context, (void)index;
  if (!is_ordinary(entry)) return is_set(entry->submitted);
  PyObject* present = PyObject_GetAttr(entry->parameter, attributes.grad);
  if (!present) return -1;
  const int must = present != Py_None && present != entry->work;
  Py_DECREF(present);
  return must;
}

static PyObject* py_finish_gradients(PyObject* self, PyObject* list) {
  (void)self;
  PyObject* all = usable() ? NULL : all_of(list);
  if (!all) return NULL;
  const Py_ssize_t total = PyTuple_Size(all);
  hvd_handle* handles = malloc(((size_t)total + 1) * sizeof *handles);
  size_t count = 0;
  Py_ssize_t i = 0;
  for (; handles && i < total; ++i) {
    gradient* entry = entry_of(all, i);
    if (!entry) break;
    BEGIN_ALONE(entry);
    if (entry->handle) handles[count++] = entry->handle;
    END_ALONE();
  }
  Py_DECREF(all);
  if (!handles) return PyErr_NoMemory();
  const int failed = i < total || finish_handles(handles, count);
  free(handles);
  return failed ? NULL : picked(list, must_store, NULL);
}

/* Clears an ordinary gradient that has ended. */
static int must_end(gradient* entry, void* context, Py_ssize_t index) {
  (void)context, (void)index;
  entry->passes_left = entry->passes;
  if (!is_set(entry->submitted)) return 0;
  if (!is_ordinary(entry)) return 1;
  PyObject *before = entry->submitted, *work = entry->work;
  entry->submitted = entry->work = NULL;
  entry->handle = 0;
  entry->added = entry->kept = entry->ordinary = 0;
  Py_XDECREF(before);
  Py_XDECREF(work);
  return 0;
}

static PyObject* py_clear_gradients(PyObject* self, PyObject* list) {
  (void)self;
  return picked(list, must_end, NULL);
}

static PyObject* py_greatest(PyObject* self, PyObject* numbers) {
  (void)self;
  if (!PyByteArray_Check(numbers)) return PyErr_Format(PyExc_TypeError, "a bytearray is needed, not %R", numbers);
  const int64_t* all = (const int64_t*)(const void*)PyByteArray_AsString(numbers);
  const Py_ssize_t count = PyByteArray_Size(numbers) / (Py_ssize_t)sizeof *all;
  int64_t most = INT64_MIN;
  for (Py_ssize_t i = 0; i < count; ++i) most = all[i] > most ? all[i] : most;
  return PyLong_FromLongLong(most);
}

static PyObject* py_hooks_in_python(PyObject* self, PyObject* value) {
  (void)self;
  const int is = PyObject_IsTrue(value);
  if (is < 0) return NULL;
  set_hooks_in_python(is);
  Py_RETURN_NONE;
}

static PyObject* py_both_hooks(PyObject* self, PyObject* value) {
  (void)self;
  const int is = PyObject_IsTrue(value);
  if (is < 0) return NULL;
  set_both_hooks(is);
  Py_RETURN_NONE;
}

PyMethodDef gradient_methods[] = {
    {"passes_begun", py_passes_begun, METH_O,
     "passes_begun([gradient, ...]) -> whether one has had a pass or is in progress"},
    {"extraordinary", py_extraordinary, METH_O,
     "extraordinary([gradient, ...]) -> those no hook has submitted as they are"},
    {"finish_gradients", py_finish_gradients, METH_O,
     "finish_gradients([gradient, ...]): waits, forgets the handles -> those whose result is not in parameter.grad"},
    {"clear_gradients", py_clear_gradients, METH_O,
     "clear_gradients([gradient, ...]) -> those that Python must end; the others are ready for the next step"},
    {"greatest", py_greatest, METH_O, "greatest(bytearray) -> the largest of its int64 numbers"},
    {"both_hooks", py_both_hooks, METH_O, "both_hooks(whether each hook that runs gives its parameter both hooks)"},
    {"hooks_in_python", py_hooks_in_python, METH_O, "hooks_in_python(whether every hook calls the reducer's Python)"},
    {NULL, NULL, 0, NULL}};

int add_gradient_types(PyObject* module) {
  if ((!gradient_type && make_gradient_type()) || (!outbox_type && make_outbox_type())) return -1;
  Py_INCREF(gradient_type); /* PyModule_AddObject takes one */
  if (PyModule_AddObject(module, "Gradient", gradient_type)) {
    Py_DECREF(gradient_type);
    return -1;
  }
  Py_INCREF(outbox_type);
  if (PyModule_AddObject(module, "Outbox", outbox_type) == 0) return 0;
  Py_DECREF(outbox_type);
  return -1;
}
