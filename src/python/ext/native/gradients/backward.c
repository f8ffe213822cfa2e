/* backward.c — tells hvd/torch/_optimizer/parameter_entries.py that a backward() begins.
 *
 * A C function, so that a backward() has no frame of this package on its stack.
 */
#include "gradient.h"

_Atomic long backwards_running;
_Atomic long long backward_changes;

/* self: (torch's run_backward, begins) */
static PyObject* run_backward(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const int nested = ++backwards_running > 1;
  ++backward_changes;
  PyObject* result = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 1), nested ? Py_True : Py_False, NULL);
  if (result) {
    Py_DECREF(result);
    result = PyObject_Call(PyTuple_GetItem(self, 0), arguments, keywords);
  }
  --backwards_running;
  ++backward_changes;
  return result;
}

static PyMethodDef watched = {"run_backward", (PyCFunction)(void (*)(void))run_backward, METH_VARARGS | METH_KEYWORDS,
                              NULL};

static PyObject* py_watched_backward(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 2) return wrong_count("watched_backward", count);
  PyObject* both = PyTuple_Pack(2, args[0], args[1]);
  PyObject* function = both ? PyCFunction_New(&watched, both) : NULL;
  Py_XDECREF(both);
  return function;
}

PyMethodDef backward_methods[] = {
    {"watched_backward", FAST(py_watched_backward), METH_FASTCALL,
     "watched_backward(run_backward, begins) -> a function that first calls begins(whether another one runs)"},
    {NULL, NULL, 0, NULL}};
