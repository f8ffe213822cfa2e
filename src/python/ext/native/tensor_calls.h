/* tensor_calls.h — the common parts of calls with one tensor and with several. */
#ifndef HVD_PYTHON_TENSOR_CALLS_H
#define HVD_PYTHON_TENSOR_CALLS_H

#include "requests.h"
#include "tensors.h"

/* The arguments of a call except the tensor. */
typedef struct call_options {
  PyObject *name, *average, *op, *prescale, *postscale, *process_set;
} call_options;

/* 1: the fields that all tensors of a call share are filled. 0: Python must do the call. Leaves no exception. */
int fill_options(hvd_request* request, int32_t kind, const call_options* options);

/* Fills the input. */
void fill_memory(hvd_request* request, const tensor_memory* memory);

#endif
