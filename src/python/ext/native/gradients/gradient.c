/* gradient.c — _native.Gradient: the state of one parameter's gradient, and the hooks that torch calls. */
#include "gradient.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

PyObject* gradient_type;

static _Atomic int hooks_in_python, both_hooks;

/* ---- an ordinary gradient: from parameter.grad to the request */

/* Fills entry->shape.  Returns 1 if the memory has the layout on which the ranks have agreed.  Returns 0 if it has not,
 * or if Python must examine it. */
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

/* read_tensor().  A parameter's gradients mostly have one layout, so later calls do not query it.  A gradient that
 * waited was made on the stream of its hook. */
static int read_found(gradient* entry, PyObject* found, tensor_memory* memory) {
  const int is_read = read_memory(found, memory, entry->layout > 0);
  if (is_read && entry->layout == 0) entry->layout = 1;
  if (!is_read && entry->layout > 0 && found != Py_None)
    entry->layout = -1; /* Py_None: the script has cleared the
gradient */
  if (!is_read || memory->device == HVD_HOST_DEVICE) return is_read;
  if (!entry->waits || memory->device != entry->gpu) return read_stream(memory->device, &memory->stream);
  memory->stream = entry->stream;
  return 1;
}

static void fill_gradient_request(const gradient* entry, const tensor_memory* memory, hvd_request* request) {
  memset(request, 0, sizeof *request);
  request->struct_size = sizeof *request;
  request->dtype = memory->dtype;
  request->name = entry->box.text;
  request->shape = entry->shape;
  request->ndim = memory->ndim;
  request->device = memory->device;
  request->stream = memory->stream;
  request->in = request->out = memory->data;
}

int read_gradient(gradient* entry, hvd_request* request) {
  PyObject* found = PyObject_GetAttr(entry->parameter, attributes.grad);
  if (!found) return -1;
  tensor_memory memory;
  int status = read_found(entry, found, &memory) && fill_gradient_shape(entry, &memory);
  if (status && prepare_name(entry)) status = -1;
  if (status != 1) {
    Py_DECREF(found);
    return status;
  }
  fill_gradient_request(entry, &memory, request);
  entry->gpu = memory.device;
  entry->waits = 0;
  entry->ordinary = 1;
  PyObject *before = entry->submitted, *work = entry->work;
  entry->submitted = entry->work = found;
  Py_INCREF(found);
  Py_XDECREF(before);
  Py_XDECREF(work);
  return 1;
}

void prefetch_gradient(const gradient* entry) {
  for (size_t at = 0; entry && at < offsetof(gradient, box.here); at += 64)
    __builtin_prefetch((const char*)entry + at, /* to write: */ 1);
}

/* ---- the hooks.  torch calls them in backward(), and may keep them longer than the gradient lives. */

/* _native.GradientHook. */
typedef struct gradient_hook {
  PyObject ob_base;
  PyObject* entry; /* a weak reference: torch does not see cycles through its hooks */
  int is_after;    /* runs after the gradient is added */
} gradient_hook;

static PyObject* hook_type;

static PyObject* call_python(gradient* entry, PyObject* callable) {
  if (is_set(callable)) return PyObject_CallFunctionObjArgs(callable, entry, NULL);
  Py_RETURN_NONE;
}

/* Returns 1 if a pass may begin without Python: no operation is in progress, and the script has not cleared the
 * gradient. */
static int begins_plainly(gradient* entry) {
  if (hooks_in_python || entry->waits || is_set(entry->submitted)) return 0;
  if (entry->passes_left == entry->passes) return 1;
  PyObject* present = PyObject_GetAttr(entry->parameter, attributes.grad);
  if (!present) PyErr_Clear();
  const int is = is_set(present);
  Py_XDECREF(present);
  return is;
}

/* call_python(), which needs entry->submitted. */
static PyObject* call_reducer(gradient* entry, PyObject* callable) {
  PyObject* box = entry->waits ? strong(entry->outbox) : NULL;
  int failed = 0;
  if (box) {
    BEGIN_ALONE(box);
    failed = outbox_flush((outbox*)box);
    END_ALONE();
  }
  Py_XDECREF(box);
  return failed ? NULL : call_python(entry, callable);
}

static PyObject* pass_begins(gradient* entry) {
  if (begins_plainly(entry)) Py_RETURN_NONE;
  return call_reducer(entry, entry->before);
}

/* A name that has been prepared is not looked at again: it lies in a line of its own. */
static int has_name(const gradient* entry) {
  if (!is_set(entry->name)) return 0;
  return entry->name == entry->named || (PyUnicode_Check(entry->name) && PyUnicode_GetLength(entry->name) > 0);
}

static int move_to_registered_memory(gradient* entry) {
  PyObject* moved = PyObject_CallMethod(entry->registered, "move_in", "O", entry->parameter);
  Py_XDECREF(moved);
  return moved ? 0 : -1;
}

/* Puts a complete gradient in the outbox. 1; 0: Python must do it, and the state has not changed; -1 with an exception.
 */
static int submit_ordinary(gradient* entry, outbox* box) {
  hvd_request request;
  const int moves = is_set(entry->registered);
  const int waits = !moves && entry->layout > 0; /* it can probably be read later */
  if (waits) {
    if (entry->gpu != HVD_HOST_DEVICE && !read_stream(entry->gpu, &entry->stream)) return 0;
  } else {
    if (moves && move_to_registered_memory(entry)) return -1;
    const int status = read_gradient(entry, &request);
    if (status != 1) return status;
  }
  entry->waits = (char)waits;
  entry->passes_left = 0;
  entry->added = entry->more;
  int failed;
  BEGIN_ALONE(box);
  failed = outbox_take(box, entry, waits ? NULL : &request);
  END_ALONE();
  return failed ? -1 : 1;
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

static PyObject* gradient_ready(gradient* entry) {
  const int status = both_hooks && !entry->both && give_both_hooks(entry) ? -1 : pass_ended(entry);
  if (status < 0) return NULL;
  if (status == 0) return call_reducer(entry, entry->after);
  Py_RETURN_NONE;
}

static PyObject* hook_call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  (void)arguments, (void)keywords;
  const gradient_hook* hook = (const gradient_hook*)self;
  PyObject* entry = strong(hook->entry);
  if (!entry) Py_RETURN_NONE;
  PyObject* result;
  BEGIN_ALONE(entry);
  result = hook->is_after ? gradient_ready((gradient*)entry) : pass_begins((gradient*)entry);
  END_ALONE();
  Py_DECREF(entry);
  return result;
}

static void hook_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(((gradient_hook*)self)->entry);
  PyObject_Free(self);
  Py_DECREF(type);
}

static gradient_hook* new_hook(gradient* entry, int is_after) {
  PyObject* weak = PyWeakref_NewRef((PyObject*)entry, NULL);
  gradient_hook* hook = weak ? PyObject_New(gradient_hook, (PyTypeObject*)hook_type) : NULL;
  if (!hook) {
    Py_XDECREF(weak);
    return NULL;
  }
  hook->entry = weak;
  hook->is_after = is_after;
  return hook;
}

/* make_hooks() -> (the hook before, the hook after backward() adds to the gradient), always the same. */
static PyObject* make_hooks(PyObject* self, PyObject* unused) {
  (void)unused;
  gradient* entry = (gradient*)self;
  PyObject* both = NULL;
  BEGIN_ALONE(self);
  for (int i = 0; i < 2; ++i)
    if (!entry->hooks[i]) entry->hooks[i] = (PyObject*)new_hook(entry, i);
  if (entry->hooks[0] && entry->hooks[1]) both = PyTuple_Pack(2, entry->hooks[0], entry->hooks[1]);
  END_ALONE();
  return both;
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
  for (int i = 0; i < 2; ++i) Py_CLEAR(entry->hooks[i]);
#define CLEAR_FIELD(field) Py_CLEAR(entry->field);
  GRADIENT_OBJECTS(CLEAR_FIELD)
#undef CLEAR_FIELD
  return 0;
}

static void gradient_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PyObject_ClearWeakRefs(self);
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
                                         GRADIENT_FIELD(waits, T_BOOL),
                                         GRADIENT_FIELD(ordinary, T_BOOL),
                                         GRADIENT_FIELD(both, T_BOOL),
                                         {"__weaklistoffset__", T_PYSSIZET, offsetof(gradient, weak), READONLY, NULL},
                                         {NULL, 0, 0, 0, NULL}};

static PyMethodDef gradient_type_methods[] = {
    {"make_hooks", make_hooks, METH_NOARGS, "make_hooks() -> (before, after): for the parameter's two hooks"},
    {NULL, NULL, 0, NULL}};

static int make_hook_type(void) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(hook_dealloc)}, {Py_tp_call, SLOT(hook_call)}, {0, NULL}};
  static PyType_Spec spec = {"hvd._native.GradientHook", sizeof(gradient_hook), 0, Py_TPFLAGS_DEFAULT, slots};
  hook_type = PyType_FromSpec(&spec);
  return hook_type ? 0 : -1;
}

int make_gradient_type(void) {
  if (!hook_type && make_hook_type()) return -1;
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
