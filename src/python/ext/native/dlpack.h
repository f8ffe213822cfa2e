/* dlpack.h — the part of DLPack's ABI (dlpack.h, version 1.2 layout) that is used here. */
#ifndef HVD_PYTHON_DLPACK_H
#define HVD_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_HOST = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };                        /* kDLCPU, kDLCUDA, kDLCUDAHost */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 }; /* of the standard widths */

typedef struct dl_tensor {
  void* data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: row by row */
  uint64_t byte_offset;
} dl_tensor;

/* DLPackExchangeAPI: a framework's functions for C, in a capsule of this name. */
#define DL_EXCHANGE_CAPSULE "dlpack_exchange_api"
#define DL_EXCHANGE_MAJOR 1
typedef struct dl_exchange {
  uint32_t major, minor;
  struct dl_exchange* older;
  void (*unused[2])(void);
  int (*to_object)(void* managed, void** object); /* takes over the managed tensor; 0, or -1 with an exception */
  int (*view)(void* tensor, dl_tensor* out);      /* owns nothing; 0, or -1 with an exception; may be NULL */
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
} dl_exchange;

#endif
