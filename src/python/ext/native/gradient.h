/* gradient.h — one parameter's gradient, and the outbox that collects gradients. The Python side of both is in
 * hvd/torch/_optimizer/parameter_entries.py and hvd/torch/_optimizer/outbox.py.
 *
 * torch's hooks are functions of gradient.c.  An ordinary gradient, dense and alone, goes from the hook to the runtime
 * in C.  For other gradients the hook calls the reducer's Python (`before`, `after`).
 * Hooks of several devices run on several threads; the GIL is held from the hook to the runtime.
 */
#ifndef HVD_PYTHON_GRADIENT_H
#define HVD_PYTHON_GRADIENT_H

#include "requests.h"
#include "tensors.h"

#define INLINE_DIMS 8 /* Python submits a gradient with more dimensions */

/* _native.Gradient, the base of ParameterEntry, which documents the first fields. */
typedef struct gradient {
  PyObject ob_base;
  PyObject *parameter, *name, *order, *work, *context, *sparse, *submitted, *group, *registered;
  PyObject* outbox; /* a weak reference; none: the hooks call Python */
  PyObject *before, *after;
  long long handle, bytes;
  int passes, passes_left;
  char more, added, kept, both;
  char ordinary; /* the hook has submitted `submitted` without Python; `work` is the same tensor */
  /* The parts of an ordinary gradient's request that must outlive its hook. */
  PyObject* named; /* the `name` from which `box` is made */
  name_box box;
  int64_t shape[INLINE_DIMS];
} gradient;

/* _native.Outbox. */
typedef struct outbox {
  PyObject ob_base;
  gradient** entries; /* [count], owned */
  hvd_request* requests;
  request_box** boxes; /* [count], each owns its request's name and shape; NULL: the gradient does */
  size_t count, room;
  PyObject* operation; /* the Operation of the ordinary gradients' requests */
  hvd_request shared;  /* the fields of `operation` */
  PyObject* owned;     /* {key: tensors of operations in progress}; all outboxes share it, it outlives the reducer */
  PyObject* keys;      /* this outbox's keys in `owned` */
  PyObject* devices;   /* {(gpu, stream)} of this step's gradients */
  PyObject* backward_number;
  int32_t last_gpu; /* the newest member of `devices`; HVD_HOST_DEVICE: none */
  void* last_stream;
  long long bytes, number_limit, bytes_limit, first_number, first_bytes;
  long long backward;       /* the backward() whose end will flush; -1: none */
  long long calls, tensors; /* submissions so far, and their tensors */
  char begun;               /* this step's first gradients have been submitted */
} outbox;

/* A function in a PyType_Slot. */
#define SLOT(function) ((void*)(uintptr_t)(function))

/* Whether a field is set. */
static inline int is_set(PyObject* field) { return field && field != Py_None; }

/* The object of a weak reference, owned; NULL without an exception: it is gone. */
static inline PyObject* strong(PyObject* weak) {
  PyObject* object = is_set(weak) ? PyWeakref_GetObject(weak) : NULL; /* borrowed */
  if (!is_set(object)) return NULL;
  Py_INCREF(object);
  return object;
}

/* The functions that return int: 0, or -1 with an exception. */

/* gradient_outbox.c: takes a gradient whose `box` and `shape` are filled, and submits if a limit is reached. */
int outbox_take(outbox* box, gradient* entry, const tensor_memory* memory);

/* The types, made once. */
extern PyObject* gradient_type; /* gradient.c */
int make_gradient_type(void);
extern PyObject* outbox_type; /* gradient_outbox.c */
int make_outbox_type(void);

/* gradient.c: value 1: from now on every hook calls Python; 0: only where it must. */
void set_hooks_in_python(int value);

/* gradient.c: value 1: from now on each hook that runs gives its parameter both hooks. */
void set_both_hooks(int value);

#endif
