/* requests.h — a Request of hvd/_runtime/requests.py as an hvd_request. */
#ifndef HVD_PYTHON_REQUESTS_H
#define HVD_PYTHON_REQUESTS_H

#include "native.h"

/* "allreduce.layer1.weight": different operations may have the same name at the same time, so the kind is part of it.
 * */
typedef struct name_box {
  const char* text; /* NULL: no name was given */
  char here[256];
  char* there; /* malloc'd when here is too small, else NULL */
} name_box;

/* A request and its memory. Do not move or copy a filled box: the request points into it. */
typedef struct request_box {
  hvd_request request;
  int64_t shape[MAX_DIMS];
  name_box name;
  int64_t* splits; /* malloc'd, or NULL */
} request_box;

/* Each function returns 0, or -1 with an exception. */

/* name: a string, bytes or None. The caller frees box->there in any case. */
int fill_name(name_box* box, int kind, PyObject* name);

/* The name of a group's member: text [length], without a NUL character; NULL: no name was given. */
int fill_member_name(name_box* box, int kind, const char* text, size_t length, size_t member);

/* The fields that are the same for all tensors of a call. */
int fill_operation(hvd_request* request, PyObject* operation);

/* Call it when both factors are filled in. hvd_request takes two zeros for factors that were not given. */
void settle_factors(hvd_request* request);

/* The caller frees *box in any case. */
int fill_request(request_box* box, PyObject* tuple);
void free_box(request_box* box);

/* Submits count requests. If their stream is being captured into a CUDA graph, records them there (HVD_CAPTURE),
 * without the GIL, and sets *recorded. A request without memory for its result is then refused: HVD_CAPTURING. Returns
 * a status.
 */
int submit_requests(const hvd_request* requests, size_t count, uint32_t flags, hvd_handle* handles, int* recorded);

#endif
