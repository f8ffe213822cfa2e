/* lane.c — Lane: allreduce_async_ and synchronize without a Python frame.
 *
 * Training loops call these two for every gradient, and nine calls of ten are alike: a dense tensor in host memory, of
 * a type that the runtime has, no older arguments.  For those a Lane does what hvd/_collectives.py and
 * hvd/_submission.py say, to the letter.  Every other call goes, as it came, to the Python methods that the Lane was
 * made with, and so does every call that an object answers with an exception: whatever is unusual is decided, and
 * refused, in one place.
 *
 * A tensor is anything with torch's is_cpu, is_contiguous(), data_ptr(), dtype and shape.  Under the GIL but for waits.
 */
#include <stdlib.h>
#include <string.h>

#include "native.h"

enum { TENSOR, AVERAGE, NAME, OP, PRESCALE, POSTSCALE, PROCESS_SET, ARGUMENTS };
static const char* const argument_names[ARGUMENTS] = {"tensor",          "average",          "name",       "op",
                                                      "prescale_factor", "postscale_factor", "process_set"};

/* Interned once, by the first Lane: attributes and keywords are then found by their address. */
static struct {
  PyObject *arguments[ARGUMENTS], *is_cpu, *is_contiguous, *data_ptr, *dtype, *shape, *process_set_id, *is_neg;
} words;

typedef struct lane {
  PyObject_HEAD PyObject*
      pending;         /* dict: what owns the tensors of operations under way, shared with the Python methods */
  PyObject* codes;     /* dict: hvd_dtype by the tensors' dtype */
  PyObject* streams;   /* set: empty until the first tensor on a GPU */
  PyObject* allreduce; /* the Python methods */
  PyObject* synchronize;
  PyObject* found_by;   /* a function that gives this Lane, for pickle */
  PyObject* last_dtype; /* NULL, or what last_code belongs to */
  int32_t last_code;
} lane;

static int make_words(void) {
  if (words.process_set_id) return 0;
  for (int i = 0; i < ARGUMENTS; ++i)
    if (!(words.arguments[i] = PyUnicode_InternFromString(argument_names[i]))) return -1;
  words.is_cpu = PyUnicode_InternFromString("is_cpu");
  words.is_contiguous = PyUnicode_InternFromString("is_contiguous");
  words.data_ptr = PyUnicode_InternFromString("data_ptr");
  words.dtype = PyUnicode_InternFromString("dtype");
  words.shape = PyUnicode_InternFromString("shape");
  words.is_neg = PyUnicode_InternFromString("is_neg");
  if (!words.is_cpu || !words.is_contiguous || !words.data_ptr || !words.dtype || !words.shape || !words.is_neg)
    return -1;
  return (words.process_set_id = PyUnicode_InternFromString("process_set_id")) ? 0 : -1;
}

/* The call as it came, by a Python method. */
static PyObject* call_as_it_came(PyObject* method, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  const Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
  PyObject* positional = PyTuple_New(count);
  PyObject* by_name = named ? PyDict_New() : NULL;
  PyObject* result = NULL;
  if (!positional || (named && !by_name)) goto done;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SetItem(positional, i, args[i]);
  }
  for (Py_ssize_t i = 0; i < named; ++i)
    if (PyDict_SetItem(by_name, PyTuple_GetItem(keywords, i), args[count + i])) goto done;
  result = PyObject_Call(method, positional, by_name);
done:
  Py_XDECREF(positional);
  Py_XDECREF(by_name);
  return result;
}

/* args and keywords as given: [ARGUMENTS] borrowed, NULL where nothing was.  0 when they are not what was expected. */
static int place_arguments(PyObject* const* args, Py_ssize_t count, PyObject* keywords, PyObject** given) {
  if (count > ARGUMENTS) return 0;
  memset(given, 0, ARGUMENTS * sizeof *given);
  for (Py_ssize_t i = 0; i < count; ++i) given[i] = args[i];
  const Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    const PyObject* word = PyTuple_GetItem(keywords, i);
    int k = 0;
    while (k < ARGUMENTS && words.arguments[k] != word) ++k;
    if (k == ARGUMENTS || given[k]) return 0;
    given[k] = args[count + i];
  }
  return given[TENSOR] != NULL;
}

/* A failed look at an object.  0: the Python method shall see for itself; -1: an interrupt. */
static int unusual(void) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  PyErr_Clear();
  return 0;
}

/* All of these: 1: done, 0: unusual, maybe with an exception. */

static int is_true(PyObject* answer) {
  const int yes = answer == Py_True;
  Py_XDECREF(answer);
  return yes;
}

/* Its memory holds the negative: torch's lazy views. */
static int is_negative(PyObject* tensor) {
  PyObject* answer = PyObject_CallMethodObjArgs(tensor, words.is_neg, NULL);
  const int plain = answer == Py_False;
  Py_XDECREF(answer);
  return !plain;
}

static int fill_code(lane* self, PyObject* tensor, hvd_request* r) {
  PyObject* dtype = PyObject_GetAttr(tensor, words.dtype);
  if (!dtype) return 0;
  if (dtype != self->last_dtype) {
    PyObject* code = PyDict_GetItemWithError(self->codes, dtype);
    const long number = code ? PyLong_AsLong(code) : -1;
    if (number < 0) {
      Py_DECREF(dtype);
      return 0;
    }
    PyObject* before = self->last_dtype;
    Py_INCREF(dtype);
    self->last_dtype = dtype;
    self->last_code = (int32_t)number;
    Py_XDECREF(before);
  }
  r->dtype = self->last_code;
  Py_DECREF(dtype);
  return 1;
}

static int fill_address(PyObject* tensor, hvd_request* r) {
  PyObject* address = PyObject_CallMethodObjArgs(tensor, words.data_ptr, NULL);
  if (!address) return 0;
  r->in = r->out = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  return r->in != NULL; /* torch's ZeroTensor has no memory */
}

/* dims: [MAX_DIMS] */
static int fill_dims(PyObject* tensor, hvd_request* r, int64_t* dims) {
  PyObject* shape = PyObject_GetAttr(tensor, words.shape);
  if (!shape) return 0;
  const Py_ssize_t count = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  int good = count >= 0 && count <= MAX_DIMS;
  for (Py_ssize_t i = 0; good && i < count; ++i) {
    dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    good = dims[i] != -1;
  }
  Py_DECREF(shape);
  r->shape = dims;
  r->ndim = (int32_t)count;
  return good;
}

static int fill_tensor(lane* self, PyObject* tensor, hvd_request* r, int64_t* dims) {
  return is_true(PyObject_GetAttr(tensor, words.is_cpu)) &&
         is_true(PyObject_CallMethodObjArgs(tensor, words.is_contiguous, NULL)) && !is_negative(tensor) &&
         fill_address(tensor, r) && fill_code(self, tensor, r) && fill_dims(tensor, r, dims);
}

static int fill_plain_factor(PyObject* given, double* factor) {
  *factor = 1.0;
  if (!given) return 1;
  if (!PyFloat_Check(given)) return 0;
  *factor = PyFloat_AsDouble(given);
  return 1;
}

static int fill_set(PyObject* given, int32_t* set) {
  *set = HVD_GLOBAL_SET;
  if (!given) return 1;
  PyObject* number = PyObject_GetAttr(given, words.process_set_id);
  if (!number) return 0;
  const int good = PyLong_CheckExact(number);
  *set = good ? (int32_t)PyLong_AsLong(number) : -1;
  Py_DECREF(number);
  return good && *set >= 0;
}

/* All but the name. */
static int fill_call(lane* self, PyObject* const* given, hvd_request* r, int64_t* dims) {
  memset(r, 0, sizeof *r);
  r->struct_size = sizeof *r;
  r->kind = HVD_ALLREDUCE;
  r->device = HVD_HOST_DEVICE;
  r->reduce = HVD_AVERAGE;
  if (given[AVERAGE] && given[AVERAGE] != Py_None) return 0;
  if (given[OP] && given[OP] != Py_None) {
    if (!PyLong_CheckExact(given[OP])) return 0;
    const long op = PyLong_AsLong(given[OP]);
    if (op < HVD_AVERAGE || op > HVD_PRODUCT) return 0;
    r->reduce = (int32_t)op;
  }
  return fill_plain_factor(given[PRESCALE], &r->prescale) && fill_plain_factor(given[POSTSCALE], &r->postscale) &&
         fill_set(given[PROCESS_SET], &r->set) && fill_tensor(self, given[TENSOR], r, dims);
}

/* The operation's owner, and its handle as an object.  The runtime has the tensor already: without memory for its owner
 * it is never freed. */
static PyObject* kept(lane* self, PyObject* tensor, hvd_handle handle) {
  PyObject* key = PyLong_FromLongLong(handle);
  PyObject* entry = key ? PyTuple_Pack(2, tensor, tensor) : NULL;
  if (entry && PyDict_SetItem(self->pending, key, entry) == 0) {
    Py_DECREF(entry);
    return key;
  }
  Py_INCREF(tensor);
  Py_XDECREF(entry);
  Py_XDECREF(key);
  return NULL;
}

static PyObject* lane_allreduce_async(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  lane* self = (lane*)object;
  PyObject* given[ARGUMENTS];
  hvd_request request;
  int64_t dims[MAX_DIMS];
  name_box name;
  if (is_forked_child() || !place_arguments(args, count, keywords, given) || !fill_call(self, given, &request, dims) ||
      fill_name(&name, HVD_ALLREDUCE, given[NAME] ? given[NAME] : Py_None))
    return unusual() ? NULL : call_as_it_came(self->allreduce, args, count, keywords);
  request.name = name.text;
  hvd_handle handle = 0;
  const int status = lib.submit(&request, &handle);
  free(name.there);
  if (status != HVD_OK) return raise_status(status);
  submitted(handle);
  return kept(self, given[TENSOR], handle);
}

/* Like `del pending[handle]`, but a failure that is being raised stays. */
static int forget(lane* self, PyObject* handle, int failed) {
  if (!failed) return PyDict_DelItem(self->pending, handle);
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (PyDict_DelItem(self->pending, handle)) PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return -1;
}

static PyObject* lane_synchronize(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  lane* self = (lane*)object;
  const int plain = count == 1 && !keywords && PyLong_CheckExact(args[0]) && !is_forked_child();
  PyObject* entry = plain ? PyDict_GetItemWithError(self->pending, args[0]) : NULL;
  if (!entry || !PyTuple_CheckExact(entry) || PySet_Size(self->streams) != 0)
    return unusual() ? NULL : call_as_it_came(self->synchronize, args, count, keywords);
  Py_INCREF(entry); /* the wait lets other threads run */
  PyObject* result = NULL;
  const int ended = finish_handle(PyLong_AsLongLong(args[0]));
  /* -2: a signal's; the operation is under way still, and its tensors must stay */
  if (ended != -2 && forget(self, args[0], ended) == 0) {
    result = PyTuple_GetItem(entry, 1);
    Py_XINCREF(result);
  }
  Py_DECREF(entry);
  return result;
}

static PyObject* lane_reduce(PyObject* object, PyObject* unused) {
  (void)unused;
  return Py_BuildValue("O()", ((lane*)object)->found_by);
}

static PyObject* lane_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  PyObject *pending, *codes, *streams, *allreduce, *synchronize, *found_by;
  if (keywords && PyDict_Size(keywords)) return wrong_count("Lane", 0);
  if (!PyArg_ParseTuple(args, "O!O!O!OOO", &PyDict_Type, &pending, &PyDict_Type, &codes, &PySet_Type, &streams,
                        &allreduce, &synchronize, &found_by) ||
      make_words())
    return NULL;
  lane* self = (lane*)PyType_GenericAlloc(type, 0); /* zeroed */
  if (!self) return NULL;
  Py_INCREF(self->pending = pending);
  Py_INCREF(self->codes = codes);
  Py_INCREF(self->streams = streams);
  Py_INCREF(self->allreduce = allreduce);
  Py_INCREF(self->synchronize = synchronize);
  Py_INCREF(self->found_by = found_by);
  return (PyObject*)self;
}

static int lane_traverse(PyObject* object, visitproc visit, void* arg) {
  lane* self = (lane*)object;
  Py_VISIT(self->pending);
  Py_VISIT(self->codes);
  Py_VISIT(self->streams);
  Py_VISIT(self->allreduce);
  Py_VISIT(self->synchronize);
  Py_VISIT(self->found_by);
  Py_VISIT(self->last_dtype);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

static void lane_dealloc(PyObject* object) {
  lane* self = (lane*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->pending);
  Py_XDECREF(self->codes);
  Py_XDECREF(self->streams);
  Py_XDECREF(self->allreduce);
  Py_XDECREF(self->synchronize);
  Py_XDECREF(self->found_by);
  Py_XDECREF(self->last_dtype);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

/* The signatures are those of the Python methods; process_set is global_process_set by default, which a C signature
 * cannot say. */
static PyMethodDef lane_methods[] = {
    {"allreduce_async_", FAST(lane_allreduce_async), METH_FASTCALL | METH_KEYWORDS,
     "allreduce_async_($self, tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, "
     "process_set=...)\n--\n\n"
     "allreduce_ that returns a handle at once; the tensor must be left alone until synchronize(handle)."},
    {"synchronize", FAST(lane_synchronize), METH_FASTCALL | METH_KEYWORDS,
     "synchronize($self, handle)\n--\n\n"
     "Waits for the operation and returns its result: a tensor, or a list of them for a grouped one.\n\n"
     "A handle that was synchronised already gives None."},
    {"__reduce__", lane_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

#define SLOT(function) (void*)(uintptr_t)(function)
static PyType_Slot lane_slots[] = {
    {Py_tp_doc, "Lane(pending, codes, streams, allreduce_async_, synchronize, found_by)"},
    {Py_tp_new, SLOT(lane_new)},
    {Py_tp_traverse, SLOT(lane_traverse)},
    {Py_tp_dealloc, SLOT(lane_dealloc)},
    {Py_tp_methods, lane_methods},
    {0, NULL}};

PyType_Spec lane_spec = {"hvd._native.Lane", sizeof(lane), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, lane_slots};
