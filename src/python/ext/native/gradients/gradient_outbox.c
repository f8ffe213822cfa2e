/* gradient_outbox.c — _native.Outbox: complete gradients that wait for a common submission
 * (hvd/torch/_optimizer/outbox.py).  gradient_flush.c submits them. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gradient.h"

PyObject* outbox_type;

static int make_room(outbox* box) {
  if (box->count < box->room) return 0;
  const size_t room = box->room ? 2 * box->room : 64;
  void* entries = realloc(box->entries, room * sizeof *box->entries);
  if (entries) box->entries = entries;
  void* requests = realloc(box->requests, room * sizeof *box->requests);
  if (requests) box->requests = requests;
  void* boxes = realloc(box->boxes, room * sizeof *box->boxes);
  if (boxes) box->boxes = boxes;
  if (!entries || !requests || !boxes) {
    PyErr_NoMemory();
    return -1;
  }
  box->room = room;
  return 0;
}

/* The caller has filled requests[count], unless the gradient waits. */
static void put(outbox* box, gradient* entry, request_box* memory) {
  Py_INCREF(entry);
  box->entries[box->count] = entry;
  box->boxes[box->count] = memory;
  ++box->count;
  box->bytes += entry->bytes;
}

/* Arranges a flush at the end of this backward(). */
static int look_for_the_end(outbox* box) {
  if (backwards_running && box->changes == backward_changes) return 0; /* as before */
  PyObject* number = PyObject_CallObject(box->backward_number, NULL);
  if (!number) return -1;
  const long long backward = PyLong_AsLongLong(number);
  Py_DECREF(number);
  if (backward == -1 && PyErr_Occurred()) return -1;
  if (backward != box->backward || backward < 0) {
    PyObject* asked = PyObject_CallMethod((PyObject*)box, "ask_for_the_end", "L", backward);
    if (!asked) return -1;
    Py_DECREF(asked);
  }
  box->changes = box->backward == backward ? backward_changes : -1;
  return 0;
}

static int look(outbox* box) {
  const long long number = (long long)box->count;
  int enough;
  if (box->begun)
    enough = number >= box->number_limit || box->bytes >= box->bytes_limit;
  else
    enough = box->begun = number >= box->first_number || box->bytes >= box->first_bytes;
  if (enough) return outbox_flush(box);
  return number ? look_for_the_end(box) : 0;
}

int outbox_take(outbox* box, gradient* entry, const hvd_request* request) {
  if ((request && note_device(box, request)) || make_room(box)) return -1;
  if (request) box->requests[box->count] = *request;
  put(box, entry, NULL);
  return look(box);
}

/* ---- methods */

/* add(gradient, Request): takes a request that Python has made. The next flush() submits the request. */
static PyObject* outbox_add(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  outbox* box = (outbox*)self;
  if (count != 2) return wrong_count("add", count);
  if (!PyObject_TypeCheck(args[0], (PyTypeObject*)gradient_type))
    return PyErr_Format(PyExc_TypeError, "add: a Gradient is needed");
  request_box* memory = malloc(sizeof *memory);
  if (!memory) return PyErr_NoMemory();
  int failed = fill_request(memory, args[1]);
  BEGIN_ALONE(self);
  if (!failed && !(failed = make_room(box))) {
    box->requests[box->count] = memory->request;
    put(box, (gradient*)args[0], memory);
  }
  END_ALONE();
  if (failed) {
    free_box(memory);
    free(memory);
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject* none_unless(int failed) {
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject* outbox_look(PyObject* self, PyObject* unused) {
  (void)unused;
  int failed;
  BEGIN_ALONE(self);
  failed = look((outbox*)self);
  END_ALONE();
  return none_unless(failed);
}

static PyObject* py_flush(PyObject* self, PyObject* unused) {
  (void)unused;
  int failed;
  BEGIN_ALONE(self);
  failed = outbox_flush((outbox*)self);
  END_ALONE();
  return none_unless(failed);
}

static PyObject* py_drop(PyObject* self, PyObject* unused) {
  (void)unused;
  BEGIN_ALONE(self);
  outbox_drop((outbox*)self);
  END_ALONE();
  Py_RETURN_NONE;
}

/* box->keys, owned; the box gets an empty list. NULL with an exception. */
static PyObject* take_keys(outbox* box) {
  PyObject *keys = NULL, *none = PyList_New(0);
  if (!none) return NULL;
  BEGIN_ALONE(box);
  keys = box->keys;
  box->keys = none;
  END_ALONE();
  return keys;
}

static PyObject* outbox_release(PyObject* self, PyObject* unused) {
  (void)unused;
  outbox* box = (outbox*)self;
  PyObject* keys = take_keys(box);
  if (!keys) return NULL;
  const Py_ssize_t count = PyList_Size(keys);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyDict_DelItem(box->owned, PyList_GetItem(keys, i))) PyErr_Clear(); /* a new world has emptied it */
  }
  Py_DECREF(keys);
  Py_RETURN_NONE;
}

static PyObject* outbox_abandon(PyObject* self, PyObject* unused) {
  (void)unused;
  PyObject* before = take_keys((outbox*)self);
  if (!before) return NULL;
  Py_DECREF(before);
  Py_RETURN_NONE;
}

static PyObject* outbox_forget_devices(PyObject* self, PyObject* unused) {
  (void)unused;
  outbox* box = (outbox*)self;
  int failed;
  BEGIN_ALONE(self);
  box->last_gpu = HVD_HOST_DEVICE;
  failed = PySet_Clear(box->devices);
  END_ALONE();
  return none_unless(failed);
}

/* ---- the type */

/* Outbox(owned, backward_number) */
static int outbox_init(PyObject* self, PyObject* args, PyObject* keywords) {
  outbox* box = (outbox*)self;
  PyObject *owned, *backward_number;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &owned, &backward_number)) return -1;
  if (box->owned) {
    PyErr_SetString(PyExc_TypeError, "an Outbox is made once");
    return -1;
  }
  box->keys = PyList_New(0);
  box->devices = PySet_New(NULL);
  if (!box->keys || !box->devices) return -1;
  Py_INCREF(owned);
  Py_INCREF(backward_number);
  box->owned = owned;
  box->backward_number = backward_number;
  box->backward = box->changes = -1;
  box->last_gpu = HVD_HOST_DEVICE;
  return 0;
}

static int outbox_traverse(PyObject* self, visitproc visit, void* arg) {
  outbox* box = (outbox*)self;
  for (size_t i = 0; i < box->count; ++i) Py_VISIT(box->entries[i]);
  Py_VISIT(box->operation);
  Py_VISIT(box->owned);
  Py_VISIT(box->keys);
  Py_VISIT(box->devices);
  Py_VISIT(box->backward_number);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

static int outbox_clear(PyObject* self) {
  outbox* box = (outbox*)self;
  outbox_empty(box);
  Py_CLEAR(box->operation);
  return 0;
}

static void outbox_dealloc(PyObject* self) {
  outbox* box = (outbox*)self;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  outbox_clear(self);
  Py_CLEAR(box->owned);
  Py_CLEAR(box->keys);
  Py_CLEAR(box->devices);
  Py_CLEAR(box->backward_number);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

#define OUTBOX_FIELD(name, type, flags) \
  { #name, type, offsetof(outbox, name), flags, NULL }
static PyMemberDef outbox_members[] = {{"waiting", T_PYSSIZET, offsetof(outbox, count), READONLY, NULL},
                                       OUTBOX_FIELD(devices, T_OBJECT, READONLY),
                                       OUTBOX_FIELD(number_limit, T_LONGLONG, 0),
                                       OUTBOX_FIELD(bytes_limit, T_LONGLONG, 0),
                                       OUTBOX_FIELD(first_number, T_LONGLONG, 0),
                                       OUTBOX_FIELD(first_bytes, T_LONGLONG, 0),
                                       OUTBOX_FIELD(backward, T_LONGLONG, 0),
                                       OUTBOX_FIELD(begun, T_BOOL, 0),
                                       OUTBOX_FIELD(calls, T_LONGLONG, READONLY),
                                       OUTBOX_FIELD(tensors, T_LONGLONG, READONLY),
                                       {NULL, 0, 0, 0, NULL}};

static PyMethodDef outbox_methods[] = {
    {"add", FAST(outbox_add), METH_FASTCALL, "add(gradient, Request): it leaves with the next flush"},
    {"look", outbox_look, METH_NOARGS, "look(): flushes at a limit, else asks for a flush at backward()'s end"},
    {"flush", py_flush, METH_NOARGS, "flush(): submits all that is here"},
    {"drop", py_drop, METH_NOARGS, "drop(): removes all gradients and reports each as refused"},
    {"release", outbox_release, METH_NOARGS, "release(): lets go of the submitted tensors; all operations have ended"},
    {"abandon", outbox_abandon, METH_NOARGS, "abandon(): keeps the submitted tensors alive until the world ends"},
    {"forget_devices", outbox_forget_devices, METH_NOARGS, "forget_devices(): empties devices for the next step"},
    {NULL, NULL, 0, NULL}};

int make_outbox_type(void) {
  static PyType_Slot slots[] = {{Py_tp_init, SLOT(outbox_init)},
                                {Py_tp_dealloc, SLOT(outbox_dealloc)},
                                {Py_tp_traverse, SLOT(outbox_traverse)},
                                {Py_tp_clear, SLOT(outbox_clear)},
                                {Py_tp_members, outbox_members},
                                {Py_tp_methods, outbox_methods},
                                {0, NULL}};
  static PyType_Spec spec = {"hvd._native.Outbox", sizeof(outbox), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  outbox_type = PyType_FromSpec(&spec);
  return outbox_type ? 0 : -1;
}
