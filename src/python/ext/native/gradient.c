/* gradient.c — _native.Gradient: the state of one parameter's gradient, and the hooks that torch calls. */
#include "gradient.h"

#include <stddef.h>
#include <stdlib.h>

PyObject* gradient_type;

static int hooks_in_python, both_hooks;

/* ---- the hooks.  torch calls them in backward(); their self is a weak reference to the gradient. */

static PyObject* call_python(gradient* entry, PyObject* callable) {
  if (is_set(callable)) return PyObject_CallFunctionObjArgs(callable, entry, NULL);
  Py_RETURN_NONE;
}

/* Whether a pass may begin without Python: no operation is in progress, and the script has not cleared the gradient. */
static int begins_plainly(gradient* entry) {
  if (hooks_in_python || is_set(entry->submitted)) return 0;
  if (entry->passes_left == entry->passes) return 1;
  PyObject* present = PyObject_GetAttr(entry->parameter, attributes.grad);
  if (!present) PyErr_Clear();
  const int is = is_set(present);
  Py_XDECREF(present);
  return is;
}

static PyObject* hook_begins(PyObject* weak, PyObject* const* unused, Py_ssize_t count) {
  (void)unused, (void)count;
  gradient* entry = (gradient*)strong(weak);
  if (!entry) Py_RETURN_NONE;
  PyObject* result = Py_None;
  if (begins_plainly(entry))
    Py_INCREF(result);
  else
    result = call_python(entry, entry->before);
  Py_DECREF(entry);
  return result;
}

/* Whether memory lies in the order on which the ranks have agreed; fills entry->shape. 0 also if Python must examine
 * it. */
static int fill_gradient_shape(gradient* entry, const tensor_memory* memory) {
  if (memory->ndim > INLINE_DIMS) return 0;
  if (!is_set(entry->order) || PyTuple_Size(entry->order) != memory->ndim) {
    for (int32_t i = 0; i < memory->ndim; ++i) entry->shape[i] = memory->shape[i];
    return lies_by_rows(memory);
  }
  int32_t order[INLINE_DIMS];
  for (int32_t i = 0; i < memory->ndim; ++i) {
    order[i] = (int32_t)PyLong_AsLong(PyTuple_GetItem(entry->order, i));
    entry->shape[i] = memory->shape[order[i]];
  }
  return lies_in_order(memory, order);
}

/* The name of the operation, made once for each world.  0, or -1 with an exception. */
static int prepare_name(gradient* entry) {
  if (entry->named == entry->name) return 0;
  free(entry->box.there);
  Py_CLEAR(entry->named);
  if (fill_name(&entry->box, HVD_ALLREDUCE, entry->name)) return -1;
  entry->named = entry->name;
  Py_INCREF(entry->named);
  return 0;
}

static int has_name(const gradient* entry) {
  return is_set(entry->name) && PyUnicode_Check(entry->name) && PyUnicode_GetLength(entry->name) > 0;
}

/* Submits an ordinary gradient. 1; 0: Python must do it, and the state has not changed; -1 with an exception. */
static int submit_ordinary(gradient* entry, outbox* box) {
  if (is_set(entry->registered)) {
    PyObject* moved = PyObject_CallMethod(entry->registered, "move_in", "O", entry->parameter);
    if (!moved) return -1;
    Py_DECREF(moved);
  }
  PyObject* found = PyObject_GetAttr(entry->parameter, attributes.grad);
  if (!found) return -1;
  tensor_memory memory;
  int status = read_tensor(found, &memory) && fill_gradient_shape(entry, &memory);
  if (status && prepare_name(entry)) status = -1;
  if (status != 1) {
    Py_DECREF(found);
    return status;
  }
  entry->passes_left = 0;
  entry->added = entry->more;
  entry->ordinary = 1;
  PyObject *before = entry->submitted, *work = entry->work;
  entry->submitted = entry->work = found;
  Py_INCREF(found);
  Py_XDECREF(before);
  Py_XDECREF(work);
  return outbox_take(box, entry, &memory) ? -1 : 1;
}

/* Handles the end of a pass that added to the gradient. 1; 0: Python must handle it; -1 with an exception. */
static int pass_ended(gradient* entry) {
  if (hooks_in_python || entry->passes_left <= 0) return 0;
  if (entry->passes_left > 1) {
    --entry->passes_left;
    entry->added = entry->more;
    return 1;
  }
  if (is_set(entry->group) || is_set(entry->submitted) || !has_name(entry)) return 0;
  PyObject* box = strong(entry->outbox);
  if (!box) return 0;
  const int status = submit_ordinary(entry, (outbox*)box);
  Py_DECREF(box);
  return status;
}

/* 0, or -1 with an exception. */
static int give_both_hooks(gradient* entry) {
  PyObject* given = PyObject_CallMethod((PyObject*)entry, "hook_before", NULL);
  Py_XDECREF(given);
  return given ? 0 : -1;
}

static PyObject* hook_ready(PyObject* weak, PyObject* const* unused, Py_ssize_t count) {
  (void)unused, (void)count;
  gradient* entry = (gradient*)strong(weak);
  if (!entry) Py_RETURN_NONE;
  PyObject* result = NULL;
  const int status = both_hooks && !entry->both && give_both_hooks(entry) ? -1 : pass_ended(entry);
  if (status == 0) {
    result = call_python(entry, entry->after);
  } else if (status > 0) {
    result = Py_None;
    Py_INCREF(result);
  }
  Py_DECREF(entry);
  return result;
}

static PyMethodDef hooks[] = {{"begins", FAST(hook_begins), METH_FASTCALL, NULL},
                              {"ready", FAST(hook_ready), METH_FASTCALL, NULL}};

/* make_hooks() -> (the hook before, the hook after backward() adds to the gradient). They hold only weak references. */
static PyObject* make_hooks(PyObject* self, PyObject* unused) {
  (void)unused;
  PyObject* weak = PyWeakref_NewRef(self, NULL);
  if (!weak) return NULL;
  PyObject* begins = PyCFunction_New(&hooks[0], weak);
  PyObject* ready = PyCFunction_New(&hooks[1], weak);
  Py_DECREF(weak);
  if (begins && ready) return Py_BuildValue("(NN)", begins, ready);
  Py_XDECREF(begins);
  Py_XDECREF(ready);
  return NULL;
}

/* ---- the type */

#define GRADIENT_OBJECTS(X) \
  X(parameter)              \
  X(name)                   \
  X(order) X(work) X(context) X(sparse) X(submitted) X(group) X(registered) X(outbox) X(before) X(after) X(named)

static int gradient_traverse(PyObject* self, visitproc visit, void* arg) {
  gradient* entry = (gradient*)self;
#define VISIT_FIELD(field) Py_VISIT(entry->field);
  GRADIENT_OBJECTS(VISIT_FIELD)
#undef VISIT_FIELD
  Py_VISIT(Py_TYPE(self));
  return 0;
}

static int gradient_clear(PyObject* self) {
  gradient* entry = (gradient*)self;
#define CLEAR_FIELD(field) Py_CLEAR(entry->field);
  GRADIENT_OBJECTS(CLEAR_FIELD)
#undef CLEAR_FIELD
  return 0;
}

static void gradient_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  gradient_clear(self);
  free(((gradient*)self)->box.there);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

#define GRADIENT_FIELD(name, type) \
  { #name, type, offsetof(gradient, name), 0, NULL }
static PyMemberDef gradient_members[] = {GRADIENT_FIELD(parameter, T_OBJECT),
                                         GRADIENT_FIELD(name, T_OBJECT),
                                         GRADIENT_FIELD(order, T_OBJECT),
                                         GRADIENT_FIELD(work, T_OBJECT),
                                         GRADIENT_FIELD(context, T_OBJECT),
                                         GRADIENT_FIELD(sparse, T_OBJECT),
                                         {"gradient", T_OBJECT, offsetof(gradient, submitted), 0, NULL},
                                         GRADIENT_FIELD(group, T_OBJECT),
                                         GRADIENT_FIELD(registered, T_OBJECT),
                                         GRADIENT_FIELD(outbox, T_OBJECT),
                                         GRADIENT_FIELD(before, T_OBJECT),
                                         GRADIENT_FIELD(after, T_OBJECT),
                                         GRADIENT_FIELD(handle, T_LONGLONG),
                                         GRADIENT_FIELD(bytes, T_LONGLONG),
                                         GRADIENT_FIELD(passes, T_INT),
                                         GRADIENT_FIELD(passes_left, T_INT),
                                         GRADIENT_FIELD(more, T_BOOL),
                                         GRADIENT_FIELD(added, T_BOOL),
                                         GRADIENT_FIELD(kept, T_BOOL),
                                         GRADIENT_FIELD(ordinary, T_BOOL),
                                         GRADIENT_FIELD(both, T_BOOL),
                                         {NULL, 0, 0, 0, NULL}};

static PyMethodDef gradient_type_methods[] = {
    {"make_hooks", make_hooks, METH_NOARGS, "make_hooks() -> (before, after): for the parameter's two hooks"},
    {NULL, NULL, 0, NULL}};

int make_gradient_type(void) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(gradient_dealloc)}, {Py_tp_traverse, SLOT(gradient_traverse)},
                                {Py_tp_clear, SLOT(gradient_clear)},     {Py_tp_members, gradient_members},
                                {Py_tp_methods, gradient_type_methods},  {0, NULL}};
  static PyType_Spec spec = {"hvd._native.Gradient", sizeof(gradient), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  gradient_type = PyType_FromSpec(&spec);
  return gradient_type ? 0 : -1;
}

void set_hooks_in_python(int value) { hooks_in_python = value; }

void set_both_hooks(int value) { both_hooks = value; }
