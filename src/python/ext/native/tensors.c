/* tensors.c — see tensors.h. */
#include "tensors.h"

#include <string.h>

#include "dlpack.h"

/* The arguments of use_tensors(). */
static struct {
  _Atomic(const dl_exchange*) exchange; /* NULL: no tensor is read in C. Set last */
  PyObject *tensor, *parameter;
  PyObject* is_negative;         /* torch.Tensor.is_neg */
  _Atomic(PyCFunction) negative; /* its function in C; NULL: call is_negative */
  PyObject* strided;             /* torch.strided */
  _Atomic int asked;             /* `negative` has been looked up */
  _Atomic int32_t gpus;          /* the runtime also handles tensors on GPUs */
} reader;

/* Returns an element of this type, in the numbers of hvd.h; -1: none. */
static int32_t dtype_of(const dl_tensor* view) {
  static const int32_t signed_types[] = {HVD_I8, HVD_I16, HVD_I32, HVD_I64};
  static const int32_t unsigned_types[] = {HVD_U8, HVD_U16, HVD_U32, HVD_U64};
  static const int32_t floats[] = {-1, HVD_F16, HVD_F32, HVD_F64};
  int width = 0;
  while (width < 4 && view->dtype.bits != 8 << width) ++width;
  if (width == 4 || view->dtype.lanes != 1) return -1;
  switch (view->dtype.code) {
    case DL_FLOAT:
      return floats[width];
    case DL_BFLOAT:
      return width == 1 ? HVD_BF16 : -1;
    case DL_INT:
      return signed_types[width];
    case DL_UINT:
      return unsigned_types[width];
    case DL_BOOL:
      return width == 0 ? HVD_BOOL : -1;
    default: /* complex numbers too: Python asks whether they are conjugated */
      return -1;
  }
}

/* The C function of a tensor's method; NULL: it has none without arguments. */
static PyCFunction function_of(PyObject* tensor, const char* method) {
  PyObject* bound = PyObject_GetAttrString(tensor, method);
  const int is = bound && PyCFunction_Check(bound) && PyCFunction_GetFlags(bound) == METH_NOARGS;
  PyCFunction found = is ? PyCFunction_GetFunction(bound) : NULL;
  Py_XDECREF(bound);
  PyErr_Clear();
  return found;
}

/* torch's lazy negatives: their memory holds the opposite.  1, 0, or -1 with an exception. */
static int is_negative(PyObject* tensor) {
  if (!reader.asked) {
    reader.negative = function_of(tensor, "is_neg");
    reader.asked = 1;
  }
  const PyCFunction negative = reader.negative;
  PyObject* answer = negative ? negative(tensor, NULL) : PyObject_CallFunctionObjArgs(reader.is_negative, tensor, NULL);
  if (!answer) return -1;
  const int is = answer != Py_False;
  Py_DECREF(answer);
  return is;
}

/* Returns 1 if the tensor's attribute is the object `wanted`. */
static int attribute_is(PyObject* tensor, PyObject* name, const PyObject* wanted) {
  PyObject* found = PyObject_GetAttr(tensor, name);
  const int is = found == wanted;
  Py_XDECREF(found);
  return is;
}

static int read_view(PyObject* object, tensor_memory* memory) {
  dl_tensor view;
  if (reader.exchange->view(object, &view)) return 0;
  memory->dtype = dtype_of(&view);
  if (memory->dtype < 0 || view.ndim > MAX_DIMS) return 0;
  memcpy(&memory->dl_dtype, &view.dtype, sizeof memory->dl_dtype);
  memory->bytes = view.dtype.bits / 8;
  for (int32_t i = 0; i < view.ndim; ++i) memory->bytes *= view.shape[i];
  memory->data = (char*)view.data + view.byte_offset;
  if (!view.data && memory->bytes) return 0; /* torch's lazy zeros */
  memory->shape = view.shape;
  memory->strides = view.strides;
  memory->ndim = view.ndim;
  memory->stream = NULL;
  memory->device = HVD_HOST_DEVICE;
  if (view.device.device_type == DL_CUDA && reader.gpus) {
    memory->device = view.device.device_id;
  } else if (view.device.device_type != DL_HOST && view.device.device_type != DL_CUDA_HOST) {
    return 0;
  }
  return is_negative(object) == 0;
}

static int is_plain_tensor(PyObject* object) {
  PyObject* type = (PyObject*)Py_TYPE(object);
  return reader.exchange && (type == reader.tensor || type == reader.parameter);
}

int read_memory(PyObject* object, tensor_memory* memory, int is_strided) {
  if (!is_plain_tensor(object)) return 0;
  /* torch raises an error for a sparse tensor, which takes milliseconds: it unwinds the C++ stack. */
  if ((is_strided || attribute_is(object, attributes.layout, reader.strided)) && read_view(object, memory)) return 1;
  PyErr_Clear();
  return 0;
}

int read_stream(int32_t gpu, void** stream) {
  if (reader.exchange && reader.exchange->current_stream(DL_CUDA, gpu, stream) == 0) return 1;
  PyErr_Clear();
  return 0;
}

/* The layout is not asked for: Python refuses every other one, so only an error takes longer. */
int read_tensor(PyObject* object, tensor_memory* memory) {
  return read_memory(object, memory, 1) &&
         (memory->device == HVD_HOST_DEVICE || read_stream(memory->device, &memory->stream));
}

int lies_by_rows(const tensor_memory* memory) {
  if (!memory->strides) return 1;
  int64_t wanted = 1;
  for (int32_t i = memory->ndim; i-- > 0;) {
    if (memory->shape[i] == 1) continue;
    if (memory->strides[i] != wanted) return memory->bytes == 0;
    wanted *= memory->shape[i];
  }
  return 1;
}

int lies_in_order(const tensor_memory* memory, const int32_t* order) {
  if (!memory->strides) return 0;
  int64_t wanted = 1;
  for (int32_t i = memory->ndim; i-- > 0;) {
    const int32_t dimension = order[i];
    if (memory->shape[dimension] == 1) continue;
    if (memory->strides[dimension] != wanted) return memory->bytes == 0;
    wanted *= memory->shape[dimension];
  }
  return 1;
}

PyObject* tensor_over(void* managed) {
  void* tensor = NULL;
  return reader.exchange->to_object(managed, &tensor) ? NULL : tensor;
}

/* use_tensors(capsule or None, tensor type, parameter type, is_neg, strided) -> whether tensors are read in C from now
 * on. */
static PyObject* py_use_tensors(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  (void)self;
  if (count != 5) return wrong_count("use_tensors", count);
  const dl_exchange* found = NULL;
  if (args[0] != Py_None) {
    found = PyCapsule_GetPointer(args[0], DL_EXCHANGE_CAPSULE);
    if (!found) return NULL;
    while (found && found->major != DL_EXCHANGE_MAJOR) found = found->older;
  }
  if (found && !found->view) found = NULL;
  for (int i = 1; i < 5; ++i) Py_INCREF(args[i]); /* for ever: objects of the framework */
  reader.tensor = args[1];
  reader.parameter = args[2];
  reader.is_negative = args[3];
  reader.strided = args[4];
  reader.exchange = found;
  return PyBool_FromLong(found != NULL);
}

static PyObject* py_use_gpu_tensors(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  reader.gpus = 1;
  Py_RETURN_NONE;
}

PyMethodDef tensor_methods[] = {
    {"use_tensors", FAST(py_use_tensors), METH_FASTCALL,
     "use_tensors(exchange capsule or None, tensor type, parameter type, is_neg, strided) -> whether tensors are read "
     "in C"},
    {"use_gpu_tensors", py_use_gpu_tensors, METH_NOARGS, "use_gpu_tensors(): those on GPUs too"},
    {NULL, NULL, 0, NULL}};
