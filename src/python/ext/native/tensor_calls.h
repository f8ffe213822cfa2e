/* tensor_calls.h — what calls of one tensor and of several share. */
#ifndef HVD_PYTHON_TENSOR_CALLS_H
#define HVD_PYTHON_TENSOR_CALLS_H

#include "requests.h"
#include "tensors.h"

/* The arguments of a call that are not the tensor. */
typedef struct call_options {
  PyObject *name, *average, *op, *prescale, *postscale, *process_set;
} call_options;

/* 1: what all tensors of a call share is filled.  0: Python must do the call.  Leaves no exception. */
int fill_options(hvd_request* request, int32_t kind, const call_options* options);

/* Fills the input. */
void fill_memory(hvd_request* request, const tensor_memory* memory);

#endif
