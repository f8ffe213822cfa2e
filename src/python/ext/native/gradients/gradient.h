/* gradient.h — one parameter's gradient, and the outbox that collects gradients. The Python side of both is in
 * hvd/torch/_optimizer/parameter_entries.py and hvd/torch/_optimizer/outbox.py.
 *
 * torch's hooks are functions of gradient.c.  An ordinary gradient, dense and alone, goes from the hook to the runtime
 * in C. The hook puts the parameter in the outbox, and flush() reads the gradients of all that wait there. Reading them
 * together is faster than reading each between torch's own work.  For other gradients the hook calls the
 * reducer's Python (`before`, `after`).
 *
 * Threads: hooks of several devices run on several threads.  The GIL protects a gradient and an outbox, or each is
 * used alone (BEGIN_ALONE of native.h).  A flush takes the contents out first, because torch gives the GIL away while
 * it answers.  From then on the contents are the flush's own.
 */
#ifndef HVD_PYTHON_GRADIENT_H
#define HVD_PYTHON_GRADIENT_H

#include "../requests.h"
#include "../tensors.h"

#define INLINE_DIMS 8 /* Python submits a gradient with more dimensions */

/* _native.Gradient, the base of ParameterEntry, which documents the first fields. */
typedef struct gradient {
  PyObject ob_base;
  /* First, near each other, the fields that an ordinary gradient's hook uses. */
  PyObject* outbox; /* a weak reference; none: the hooks call Python */
  PyObject *group, *submitted, *registered, *name;
  PyObject* named; /* the `name` from which `box` is made */
  int passes, passes_left;
  char more, added, kept, both;
  char waits;         /* complete, and in the outbox: flush() reads it */
  char ordinary;      /* `submitted` was submitted without Python; `work` is the same tensor */
  signed char layout; /* of its last gradient: 1: strided, 0: unknown, -1: it changes */
  int32_t gpu;        /* of its last gradient, or HVD_HOST_DEVICE */
  long long bytes;
  void* stream; /* waits, on a GPU: the current stream of its hook */
  PyObject *parameter, *order, *work;
  long long handle;
  /* With `box`: the parts of an ordinary gradient's request that must outlive its hook. */
  int64_t shape[INLINE_DIMS];
  name_box box;
  PyObject *context, *sparse, *before, *after;
  PyObject* hooks[2]; /* GradientHooks, for before and after a gradient is added; NULL: not made yet */
  PyObject* weak;     /* of CPython: the weak references to this gradient */
} gradient;

/* _native.Outbox. */
typedef struct outbox {
  PyObject ob_base;
  gradient** entries;    /* [count], owned */
  hvd_request* requests; /* [count]; not filled where the gradient waits */
  request_box** boxes;   /* [count], each owns its request's name and shape; NULL: the gradient does */
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
  long long changes;        /* backward_changes when `backward` was last read */
  long long calls, tensors; /* number of submissions, and of their tensors */
  char begun;               /* this step's first gradients have been submitted */
} outbox;

/* A function in a PyType_Slot. */
#define SLOT(function) ((void*)(uintptr_t)(function))

/* The functions that return int: 0, or -1 with an exception. */

/* Only one thread at a time may call a function on an outbox.  gradient_outbox.c: takes a complete gradient, and
 * submits if a limit is reached. request: NULL: the gradient waits. */
int outbox_take(outbox* box, gradient* entry, const hvd_request* request);

/* gradient_flush.c: submits everything. */
int outbox_flush(outbox* box);

/* Removes everything; outbox_drop() also reports it to the reducer as refused. */
void outbox_empty(outbox* box);
void outbox_drop(outbox* box);

/* Adds the request's device to box->devices. */
int note_device(outbox* box, const hvd_request* request);

/* gradient.c: reads parameter.grad as an ordinary gradient: fills the request, except the operation's fields, and
 * the entry.  1; 0: Python must submit it, and the entry has not changed; -1 with an exception. */
int read_gradient(gradient* entry, hvd_request* request);

/* Brings the lines of a gradient that is probably used soon into the caches. */
void prefetch_gradient(const gradient* entry);

/* backward.c: the backward() calls of torch's Python that run on all threads, and how often that number has changed. */
extern _Atomic long backwards_running;
extern _Atomic long long backward_changes;

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
