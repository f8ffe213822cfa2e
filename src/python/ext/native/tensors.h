/* tensors.h — torch tensors, read in C. DLPack's exchange functions give a tensor's memory without compiled code of
 * torch's version (torch 2.10 and later). hvd/torch/_adapter.py handles the tensors that cannot be read here. */
#ifndef HVD_PYTHON_TENSORS_H
#define HVD_PYTHON_TENSORS_H

#include "native.h"

typedef struct tensor_memory {
  void* data;
  const int64_t* shape;   /* [ndim]; the tensor's own */
  const int64_t* strides; /* [ndim], in elements; NULL: row by row */
  int64_t bytes;
  int32_t dtype, ndim;
  uint32_t dl_dtype; /* the type in DLPack's form */
  int32_t device;    /* HVD_HOST_DEVICE, or a GPU */
  void* stream;      /* the GPU's current stream */
} tensor_memory;

/* Returns 1 if it has filled *memory, and 0 if operations cannot use the tensor directly. Leaves no exception. */
int read_tensor(PyObject* object, tensor_memory* memory);

/* Like read_tensor(), without the stream. is_strided: a hint that the tensor is probably strided. With the hint, a
 * tensor of another layout costs milliseconds, and is not read. */
int read_memory(PyObject* object, tensor_memory* memory, int is_strided);

/* Returns 1 if *stream is the GPU's current stream, and 0 if the stream is unknown. */
int read_stream(int32_t gpu, void** stream);

/* Returns a torch tensor that takes over a DLManagedTensorVersioned; NULL with an exception. */
PyObject* tensor_over(void* managed);

/* Returns 1 if the elements lie row by row, without gaps. */
int lies_by_rows(const tensor_memory* memory);

/* Like lies_by_rows(), for the tensor with its dimensions permuted. order: [ndim], the outermost dimension first. */
int lies_in_order(const tensor_memory* memory, const int32_t* order);

#endif
