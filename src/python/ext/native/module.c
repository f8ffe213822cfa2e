/* module.c — the module hvd._native, and its calls about the world. */
#include <stdlib.h>

#include "native.h"

/* A sequence of ranks as [*total], malloc'd.  NULL with an exception. */
static int32_t* rank_list(PyObject* ranks, Py_ssize_t* total) {
  *total = PySequence_Size(ranks);
  if (*total < 0) return NULL;
  int32_t* list = malloc(((size_t)*total + 1) * sizeof *list);
  if (!list) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < *total; ++i) {
    PyObject* item = PySequence_GetItem(ranks, i);
    list[i] = item ? (int32_t)PyLong_AsLong(item) : -1;
    Py_XDECREF(item);
  }
  if (!PyErr_Occurred()) return list;
  free(list);
  return NULL;
}

static PyObject* py_init(PyObject* self, PyObject* ranks) {
  (void)self;
  int32_t* list = NULL;
  Py_ssize_t total = 0;
  if (usable()) return NULL;
  if (ranks != Py_None && !(list = rank_list(ranks, &total))) return NULL;
  const hvd_init_options options = {sizeof options, list, (int32_t)total};
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.init(list ? &options : NULL);
  Py_END_ALLOW_THREADS;
  free(list);
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_shutdown(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  int status;
  if (is_forked_child()) Py_RETURN_NONE; /* the parent's business */
  Py_BEGIN_ALLOW_THREADS;
  status = lib.shutdown();
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_is_initialized(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyBool_FromLong(lib.is_initialized());
}

static PyObject* py_world(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  hvd_world w;
  if (usable()) return NULL;
  const int status = lib.get_world(&w);
  if (status != HVD_OK) return raise_status(status);
  return Py_BuildValue("(iiiiiiii)", w.rank, w.size, w.local_rank, w.local_size, w.cross_rank, w.cross_size,
                       w.homogeneous, w.mpi_threads);
}

static PyObject* py_set_add(PyObject* self, PyObject* ranks) {
  (void)self;
  Py_ssize_t total = 0;
  int32_t set = 0;
  int status;
  if (usable()) return NULL;
  int32_t* list = rank_list(ranks, &total);
  if (!list) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.set_add(list, (int32_t)total, &set);
  Py_END_ALLOW_THREADS;
  free(list);
  return status == HVD_OK ? PyLong_FromLong(set) : raise_status(status);
}

static PyObject* py_set_remove(PyObject* self, PyObject* arg) {
  (void)self;
  const int32_t set = (int32_t)PyLong_AsLong(arg);
  int status;
  if (PyErr_Occurred() || usable()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = lib.set_remove(set);
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_timeline_start(PyObject* self, PyObject* args) {
  (void)self;
  const char* path;
  int mark_cycles;
  if (!PyArg_ParseTuple(args, "sp", &path, &mark_cycles) || usable()) return NULL;
  const int status = lib.timeline_start(path, mark_cycles);
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_timeline_stop(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (usable()) return NULL;
  const int status = lib.timeline_stop();
  if (status != HVD_OK) return raise_status(status);
  Py_RETURN_NONE;
}

static PyObject* py_built(PyObject* self, PyObject* arg) {
  (void)self;
  const char* what = PyUnicode_AsUTF8AndSize(arg, NULL);
  return what ? PyLong_FromLong(lib.built(what)) : NULL;
}

static PyObject* py_use_memory(PyObject* self, PyObject* arg) {
  (void)self;
  const char* framework = PyUnicode_AsUTF8AndSize(arg, NULL);
  return framework ? PyBool_FromLong(lib.use_memory(framework) == HVD_OK) : NULL;
}

static PyObject* py_version(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyUnicode_FromString(lib.version());
}

/* An object that must outlive the interpreter, because the runtime's thread uses its memory. */
static PyObject* py_leak(PyObject* self, PyObject* object) {
  (void)self;
  Py_INCREF(object);
  Py_RETURN_NONE;
}

static PyMethodDef world_methods[] = {
    {"init", py_init, METH_O, "init(ranks or None)"},
    {"shutdown", py_shutdown, METH_NOARGS, NULL},
    {"is_initialized", py_is_initialized, METH_NOARGS, NULL},
    {"world", py_world, METH_NOARGS, "rank, size, local rank and size, cross rank and size, homogeneous, mpi threads"},
    {"set_add", py_set_add, METH_O, "set_add(ranks) -> number.  Collective"},
    {"set_remove", py_set_remove, METH_O, "set_remove(number).  Collective"},
    {"timeline_start", py_timeline_start, METH_VARARGS, "timeline_start(path, mark_cycles)"},
    {"timeline_stop", py_timeline_stop, METH_NOARGS, NULL},
    {"built", py_built, METH_O, "built(what) -> int"},
    {"use_memory", py_use_memory, METH_O, "use_memory(framework) -> bool: device memory comes from it"},
    {"version", py_version, METH_NOARGS, NULL},
    {"leak", py_leak, METH_O, "leak(object): never frees it"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "_native",
                                        "The C interface of libhvd, for hvd/_collectives.py.",
                                        -1,
                                        world_methods,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__native(void) {
  if (!lib.library && open_library()) return NULL;
  PyObject* module = PyModule_Create(&definition);
  if (!module) return NULL;
  PyObject* lane = PyType_FromSpec(&lane_spec);
  if (!lane || PyModule_AddObject(module, "Lane", lane)) { /* takes the reference when it works */
    Py_XDECREF(lane);
    Py_DECREF(module);
    return NULL;
  }
  if (PyModule_AddFunctions(module, tensor_methods) || PyModule_AddFunctions(module, result_methods) ||
      PyModule_AddIntConstant(module, "GROUP", HVD_GROUP)) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
