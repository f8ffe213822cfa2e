/* The C interface of version 1, as programs were compiled against it.  Never change this file. */
#include <stddef.h>
#include <stdint.h>

enum {
  HVD_OK = 0,
  HVD_USAGE = 2,
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_JOIN = 6,
  HVD_I32 = 4,
  HVD_F32 = 7,
  HVD_SUM = 1
};
enum { HVD_GLOBAL_SET = 0, HVD_HOST_DEVICE = -1 };

typedef struct hvd_request {
  uint32_t struct_size;
  int32_t kind, dtype, reduce;
  const char* name;
  const int64_t* shape;
  int32_t ndim, root, set, device;
  double prescale, postscale;
  const void* in;
  void* out;
  const int64_t* splits;
  int32_t num_splits;
  void* stream;
  size_t out_bytes;
} hvd_request;

typedef int64_t hvd_handle;

typedef struct hvd_init_options {
  uint32_t struct_size;
  const int32_t* ranks;
  int32_t num_ranks;
} hvd_init_options;

typedef struct hvd_world {
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size, homogeneous, mpi_threads;
} hvd_world;

typedef struct hvd_link {
  int peer;
  char card[16];
  int64_t bytes, busy_ns, round_trip_ns;
} hvd_link;

int hvd_init(const hvd_init_options* options);
int hvd_shutdown(void);
int hvd_get_world(hvd_world* world);
int hvd_submit_many(const hvd_request* requests, size_t count, unsigned flags, hvd_handle* handles);
int hvd_wait_many(const hvd_handle* handles, size_t count, double timeout_seconds);
int hvd_take(hvd_handle handle, void** data, int64_t* shape, int32_t* ndim);
void hvd_free(void* data);
int hvd_release_many(const hvd_handle* handles, size_t count);
int hvd_run(const hvd_request* request);
int hvd_links(hvd_link* links, size_t room, size_t* count);
const char* hvd_last_error(void);
