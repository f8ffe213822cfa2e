/**
 * @file hvd.h — the C interface of libhvd, the collective runtime of hvdrun.
 *
 * This is the only installed header: C11, no dependencies. The framework adapters, the Python package and the tools use
 * only this interface.
 *
 * Conventions
 *   - Every function returns an hvd_status unless its comment says otherwise. On failure hvd_last_error() returns one
 *     line of text for the calling thread.
 *   - All counts are 64 bit. Tensors are dense and row-major.
 *   - All functions may be called from any thread. hvd_init and hvd_shutdown must not run at the same time.
 *   - The caller keeps the ownership of memory that it passes. Until the operation has ended, `in` must stay readable
 *     and unchanged, and `out` writable and unread.
 *   - After fork() the child must call no function except hvd_is_initialized.
 */
#ifndef HVD_HVD_H
#define HVD_HVD_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 1

/** The outcome of a call, by the party that must act. Our programs use the same numbers as exit codes. */
typedef enum hvd_status {
  HVD_OK = 0,
  HVD_USAGE = 2,       /**< an argument or a call is wrong; a retry is useless */
  HVD_MISMATCH = 3,    /**< ranks disagree on shape, dtype, op, root, factors */
  HVD_UNAVAILABLE = 4, /**< a library, device or host is missing */
  HVD_PEER_LOST = 5,   /**< a rank ended or died */
  HVD_TIMEOUT = 6,     /**< no progress for longer than allowed */
  HVD_DIVERGED = 7,    /**< ranks have different results of one operation, or different parameters */
  HVD_CAPTURING = 8,   /**< the tensor's stream is being captured into a CUDA graph: see HVD_CAPTURE */
  HVD_INTERNAL = 70    /**< a bug of libhvd */
} hvd_status;

/** The operations: X(enumerator, number, word, name). word is the name in C++; name is the name in messages, in
 * timelines and before a tensor's name. */
#define HVD_KINDS(X)                                      \
  X(HVD_ALLREDUCE, 0, allreduce, "allreduce")             \
  X(HVD_ALLGATHER, 1, allgather, "allgather")             \
  X(HVD_BROADCAST, 2, broadcast, "broadcast")             \
  X(HVD_ALLTOALL, 3, alltoall, "alltoall")                \
  X(HVD_REDUCESCATTER, 4, reducescatter, "reducescatter") \
  X(HVD_BARRIER, 5, barrier, "barrier")                   \
  X(HVD_JOIN, 6, join, "join")

/** The types of elements: X(enumerator, number, word, name, bytes of one element). word is the name in C++; name
 * is the name in NumPy, torch and JAX.
 *
 * Floating-point numbers of 8 and 16 bits are added, multiplied and scaled in f32. The result is rounded once, to the
 * nearest (ties to even), with any number of ranks and nodes. For GPUs see HVD_NCCL_WIDE in hvdrun(1). A number that is
 * too large becomes infinity, or NaN in e4m3fn: there is no saturation. HVD_ADASUM accepts all floating-point types.
 * Complex numbers have the real part first. They can be added, averaged and multiplied. HVD_OPAQUE is a byte of any
 * other type. It can be moved, but not reduced.
 * HVD_F8E4M3: no infinity, NaN is 0x7f and 0xff, largest number 448. HVD_F8E5M2: like f16 with a fraction of 2 bits,
 * largest number 57344. */
#define HVD_DTYPES(X)                           \
  X(HVD_U8, 0, u8, "uint8", 1)                  \
  X(HVD_I8, 1, i8, "int8", 1)                   \
  X(HVD_U16, 2, u16, "uint16", 2)               \
  X(HVD_I16, 3, i16, "int16", 2)                \
  X(HVD_I32, 4, i32, "int32", 4)                \
  X(HVD_I64, 5, i64, "int64", 8)                \
  X(HVD_F16, 6, f16, "float16", 2)              \
  X(HVD_F32, 7, f32, "float32", 4)              \
  X(HVD_F64, 8, f64, "float64", 8)              \
  X(HVD_BOOL, 9, boolean, "bool", 1)            \
  X(HVD_BF16, 10, bf16, "bfloat16", 2)          \
  X(HVD_F8E4M3, 11, f8e4m3, "float8_e4m3fn", 1) \
  X(HVD_F8E5M2, 12, f8e5m2, "float8_e5m2", 1)   \
  X(HVD_U32, 13, u32, "uint32", 4)              \
  X(HVD_U64, 14, u64, "uint64", 8)              \
  X(HVD_C64, 15, c64, "complex64", 8)           \
  X(HVD_C128, 16, c128, "complex128", 16)       \
  X(HVD_OPAQUE, 17, opaque, "opaque", 1)

/** The reductions: X(enumerator, number, word, name).  Numbers and names are Horovod's. The average of integers is
 * truncated. */
#define HVD_REDUCES(X)                  \
  X(HVD_AVERAGE, 0, average, "Average") \
  X(HVD_SUM, 1, sum, "Sum")             \
  X(HVD_ADASUM, 2, adasum, "Adasum")    \
  X(HVD_MIN, 3, min, "Min")             \
  X(HVD_MAX, 4, max, "Max")             \
  X(HVD_PRODUCT, 5, product, "Product")

#define HVD_ENUMERATOR(enumerator, number, ...) enumerator = number,
typedef enum hvd_kind { HVD_KINDS(HVD_ENUMERATOR) } hvd_kind;
typedef enum hvd_dtype { HVD_DTYPES(HVD_ENUMERATOR) } hvd_dtype;
typedef enum hvd_reduce { HVD_REDUCES(HVD_ENUMERATOR) } hvd_reduce;
#undef HVD_ENUMERATOR

#define HVD_GLOBAL_SET 0
#define HVD_HOST_DEVICE (-1)

/** One tensor of one operation. Zero-initialise, then fill in. */
typedef struct hvd_request {
  uint32_t struct_size; /**< sizeof(hvd_request): permits later versions of the struct */
  int32_t kind;         /**< hvd_kind */
  int32_t dtype;        /**< hvd_dtype */
  int32_t reduce;       /**< hvd_reduce; allreduce and reducescatter only */
  const char* name;     /**< same on all ranks; NULL: made from the order of calls; copied */
  const int64_t* shape; /**< [ndim], each >= 0; copied */
  int32_t ndim;         /**< 0 to 64; 0 is a scalar, one element */
  int32_t root;         /**< broadcast: rank within the set */
  int32_t set;          /**< process set, HVD_GLOBAL_SET */
  int32_t device;       /**< HVD_HOST_DEVICE, or a CUDA ordinal */
  double prescale;      /**< multiplies the input; 0 means 1 if postscale is 0 too */
  double postscale;     /**< multiplies the result */
  const void* in;       /**< [elements]; may be NULL when there are no elements */
  void* out;            /**< allreduce, broadcast: [elements], may equal in. Others: NULL, or see out_bytes */
  const int64_t*
      splits; /**< alltoall: [num_splits = size of the set] rows for each member; copied. NULL: equal parts */
  int32_t num_splits;
  void* stream;     /**< device >= 0: the CUstream that makes `in` and will use the result; NULL: the default stream;
                       HVD_WHOLE_CONTEXT: any stream of the GPU's context */
  size_t out_bytes; /**< reducescatter, alltoall, and allgather on a GPU: bytes of `out`, on the same device. A result
                       of exactly that size is written there; hvd_take returns any other. `out` may be the place of this
                       rank's own part of `in` (reducescatter); else they do not overlap */
} hvd_request;      /**< a shorter struct, without out_bytes, stream or splits, is accepted, by its struct_size */

/** Tensors on a GPU. `in` and `out` are device memory of `device`. There is one GPU for each rank and process set.
 * Either the tensors of all ranks are on GPUs, or none is. `stream` must exist until the operation has ended. The
 * operation begins when the work that `stream` had at submission is done. hvd_wait returns when the operation is queued
 * on the GPU, and makes `stream` wait for it. The host does not wait. So later work on `stream` may use the result.
 * Other streams need hvd_after. hvd_poll reports the real end of the operation. A result of hvd_take is device memory
 * too. hvd_free releases it when `stream` has done its earlier work. NCCL carries the tensors if all ranks have it;
 * else they go through host memory.
 *
 * CUDA graphs: other threads may capture at any time. While `stream` is being captured, submission is refused
 * (HVD_CAPTURING, nothing is submitted): HVD_CAPTURE records the operations in the graph. The wait of a captured stream
 * for an operation outside of the graph is refused too (hvd_wait, hvd_wait_many, hvd_after: HVD_USAGE). The handle does
 * not change then, and the call may be repeated after the capture. */

/** For a caller that does not know its framework's stream (hvd_request.stream). The operation begins when the work that
 * all streams of the GPU's primary context had at submission is done. hvd_wait then makes no stream wait. The result
 * may be used when hvd_poll reports the end. A result of hvd_take is released (hvd_free) when no work uses it any more.
 * hvd_run and hvd_after refuse this value (HVD_USAGE), because they give no handle to poll, and make a stream wait. The
 * value needs a driver for CUDA 12.5 (HVD_UNAVAILABLE). While a stream of the context is being captured, it is refused
 * (HVD_USAGE), and the driver invalidates that capture (cuCtxRecordEvent). */
#define HVD_WHOLE_CONTEXT ((void*)-1)

typedef int64_t hvd_handle; /**< > 0 */

typedef struct hvd_init_options {
  uint32_t struct_size;
  const int32_t* ranks; /**< [num_ranks] of the launch that form the world, NULL: all */
  int32_t num_ranks;
} hvd_init_options;

/** Joins the world that the launcher made; without a launcher, a world of one rank. Collective over the launch. options
 * may be NULL. A call in an initialised process has no effect. */
HVD_API int hvd_init(const hvd_init_options* options);

/** Leaves the world. Collective. Operations in progress end with HVD_PEER_LOST. hvd_init works again afterwards. */
HVD_API int hvd_shutdown(void);

/** 1 or 0. Never fails. */
HVD_API int hvd_is_initialized(void);

/** The place of this rank; one call fills in all fields. HVD_USAGE before hvd_init. */
typedef struct hvd_world {
  int32_t rank, size;
  int32_t local_rank, local_size; /**< among the ranks of this host */
  int32_t cross_rank, cross_size; /**< host index, hosts, among hosts that have this local_rank */
  int32_t homogeneous;            /**< 1: every host has the same number of ranks */
  int32_t mpi_threads;            /**< 1: other threads may call MPI: it has MPI_THREAD_MULTIPLE, or the runtime does
                                     not use MPI */
} hvd_world;
HVD_API int hvd_get_world(hvd_world* world);

/** Returns the expected place of this rank in the next world. An elastic job may start a rank while others train. Such
 * a rank may call this function before hvd_init. The call does not wait. The rank is in no world yet, and no other rank
 * waits for it. The rank prepares its work, then calls hvd_init. hvd_get_world then returns its real place.
 * HVD_UNAVAILABLE without hvdrun, and for a rank that is no longer needed. */
HVD_API int hvd_expect(hvd_world* world);

/** Process sets: some of the ranks, with separate operations. Operations of one set never wait for those of another
 * set. In a set, ranks, root and splits count by the set's own order: its rank i is ranks[i]. HVD_GLOBAL_SET is the
 * world.
 *
 * Adding and removing are collective over the world, members and others, and may be called from several threads. ranks:
 * [count] world ranks, distinct. *set: a new number > 0, the same on all ranks. HVD_USAGE on all ranks if a set of
 * these ranks exists, in any order. HVD_UNAVAILABLE on all ranks if one rank has no memory for the set. */
HVD_API int hvd_set_add(const int32_t* ranks, int32_t count, int32_t* set);
/** Removes a process set. Its operations in progress end with HVD_USAGE. The call returns HVD_USAGE for the global set
 * and for unknown sets. */
HVD_API int hvd_set_remove(int32_t set);
/** *rank: this rank's place in the set, -1: not a member.  ranks: [*size] world ranks, or NULL. */
HVD_API int hvd_set_get(int32_t set, int32_t* rank, int32_t* size, int32_t* ranks);

/** Submits one tensor and returns at once. HVD_USAGE if an operation of that name is in progress. */
HVD_API int hvd_submit(const hvd_request* request, hvd_handle* handle);

/** Submits count tensors in one call; with HVD_GROUP they become ready, and run, together. handles: [count]. All are
 * for one process set. All or nothing: on failure no tensor is submitted. */
#define HVD_GROUP 1u
/** With HVD_CAPTURE the call records the operations in the CUDA graph that is being captured on the tensors' stream.
 * All tensors have the same stream. The call waits until all ranks of the set have made it, and compares the ranks'
 * calls: HVD_MISMATCH if they differ. HVD_USAGE, on all ranks, if one rank cannot record it. The handles are those of
 * ended operations: to wait for one does nothing. Later work on `stream`, within the capture, may use the results. Each
 * launch of the graph repeats the operations, and all ranks must launch their graphs in the same order. The graph must
 * not be launched any more after hvd_shutdown or hvd_set_remove of the set. allreduce, broadcast, and with `out` of the
 * exact size also reducescatter, allgather with equal rows on all ranks, and alltoall in equal parts can be recorded.
 */
#define HVD_CAPTURE 2u
HVD_API int hvd_submit_many(const hvd_request* requests, size_t count, uint32_t flags, hvd_handle* handles);

/** *done = 1 when the operation has ended, with or without an error; the handle stays valid. */
HVD_API int hvd_poll(hvd_handle handle, int* done);

/** Waits until the operation ends and returns its status. HVD_TIMEOUT if timeout_seconds pass first (negative: no
 * limit); the operation is then still in progress. The waiting thread may run the engine itself. */
HVD_API int hvd_wait(hvd_handle handle, double timeout_seconds);
/** hvd_wait for each of count handles: the status of the first that failed, when all have ended. HVD_TIMEOUT if some
 * are still in progress after timeout_seconds. All handles stay valid. handles: [count]. */
HVD_API int hvd_wait_many(const hvd_handle* handles, size_t count, double timeout_seconds);

/** Arranges one call of ended(context) for the end of the operation. If it has ended already, the call comes at once.
 * The calling thread is the thread that ended the operation, often the runtime's own in the middle of other work. So
 * ended must return at once, and must call no function of libhvd. It passes the news to another thread. For frameworks
 * that must not block their threads in hvd_wait. Once per handle: HVD_USAGE the second time. */
HVD_API int hvd_notify(hvd_handle handle, void (*ended)(void* context), void* context);

/** The result of a finished allgather, alltoall or reducescatter. The size of such a result depends on all ranks. In a
 * reducescatter each member gets its part of the rows, in order; the first (rows mod size) members get one more.
 * *data: [prod(shape)], malloc'd, owned by the caller: hvd_free. shape: [64] is filled, *ndim set. Works once.
 * HVD_USAGE if the result is in hvd_request.out. */
HVD_API int hvd_take(hvd_handle handle, void** data, int64_t* shape, int32_t* ndim);
HVD_API void hvd_free(void* data);

/** Returns registered memory: zeroed, page-aligned, populated at once, shared by all ranks of this node. If the tensor
 * of an allreduce lies in registered memory on every rank of the node, the ranks reduce directly between their arrays.
 * Nothing else differs. Works before hvd_init, after hvd_shutdown and in a world of one. If the system allows no shared
 * memory, the memory is ordinary. hvd_free releases the memory, when no operation on it is in progress. After fork()
 * parent and child share the memory. HVD_UNAVAILABLE if there is too little memory. */
HVD_API int hvd_alloc(size_t bytes, void** data);

/** Returns device memory of ncclMemAlloc, of at least `bytes`. The runtime registers this memory with NCCL when a
 * tensor in it travels in an NCCL call of its own. Then NCCL needs no copies through its own buffers where the hardware
 * allows that. On every rank, the tensors of one operation must lie in such memory, or none. `device`: a CUDA ordinal.
 * NULL: hvd_last_error tells why. hvd_gpu_free takes the memory back for a later hvd_gpu_alloc of the same size, after
 * the work that `stream` has now. The process keeps the memory. Both have the form that
 * torch.cuda.CUDAPluggableAllocator needs. Any thread. */
HVD_API void* hvd_gpu_alloc(size_t bytes, int device, void* stream);
HVD_API void hvd_gpu_free(void* data, size_t bytes, int device, void* stream);

/** The number of rows from each member of the set in a finished alltoall (or allgather). splits: [size of the set] is
 * filled. */
HVD_API int hvd_take_splits(hvd_handle handle, int64_t* splits);

/** HVD_JOIN: this rank has no more data. A join is submitted like any operation, but only `set` counts. The join ends
 * when all ranks of the set have joined. Until then this rank may submit no other operation of the set. The rank takes
 * part in the operations of the other ranks, with zeros or no rows. An average still divides by the size of the set.
 * The rank's own operations in progress go on. Min, Max, Product, a broadcast from a root that has joined, and a change
 * of process sets end with HVD_MISMATCH. *last_rank: the world rank that joined last, when the operation has ended. */
HVD_API int hvd_join_result(hvd_handle handle, int32_t* last_rank);

/** Makes a stream (a CUstream of the same GPU) wait for an operation on device memory. The operation must have been
 * waited for (hvd_wait). Work that is put on the stream from now on runs after the operation. No effect for an
 * operation on host memory. */
HVD_API int hvd_after(hvd_handle handle, void* stream);

/** Releases a handle. The handle of an operation in progress is released when the operation ends. */
HVD_API int hvd_release(hvd_handle handle);
/** hvd_release for count handles. HVD_USAGE if some were unknown, or released before; the others are released. */
HVD_API int hvd_release_many(const hvd_handle* handles, size_t count);

/** hvd_submit and hvd_wait in one call, which is faster for small tensors. *handle: 0 if nothing was submitted, else
 * the caller releases it. */
HVD_API int hvd_submit_and_wait(const hvd_request* request, double timeout_seconds, hvd_handle* handle);

/** Blocking operation in one call: submit, wait, release.  The fast path for small tensors. */
HVD_API int hvd_run(const hvd_request* request);

/** Starts the timeline on this rank (HOROVOD_TIMELINE does it at init). path is used if no launcher collects the
 * timeline. */
HVD_API int hvd_timeline_start(const char* path, int mark_cycles);
HVD_API int hvd_timeline_stop(void);

/** Whether this build and machine have something; 0 if not. "mpi", "shm": 1. "cuda": the driver's version if there is a
 * GPU (13000). "nccl": its version (23007). "kernels": the runtime's kernels for the GPU were built. */
HVD_API int hvd_built(const char* what);

/** From now on, fusion buffers and results on GPUs come from the allocator of that framework ("torch"). HVD_UNAVAILABLE
 * if the framework is not in this process, has no allocator, or HVD_TORCH_MEMORY is 0. The memory then comes from the
 * driver, as before. */
HVD_API int hvd_use_memory(const char* framework);

/** After HVD_PEER_LOST: 1 if all ranks that left the world did so by hvd_shutdown, and no rank is known to have died.
 * All ranks can then call hvd_init again. Also 1 when this rank itself has left the world. */
HVD_API int hvd_departed(void);

/** HVD_OK while operations of the world and its sets work. Otherwise the error by which they ended. An operation on
 * GPUs ends when it is queued. If a rank is lost later, the result is incomplete. So before you keep results: wait
 * until the GPUs have finished, then call this function. */
HVD_API int hvd_check_world(void);

/** With hvdrun --agreement: one line about the first NaN or infinity that this rank has found in a floating-point sum
 * since the last call, without a newline. A rank looks at the part of a sum that it adds up itself. The line names
 * operation, step, element, and the ranks from which it comes. After the first call of a process, the runtime writes
 * no such lines itself: the caller knows whether the training uses the sum. text: [size]. *length: bytes of the line;
 * 0: there is none. HVD_USAGE if size is less, and before hvd_init. Any thread. */
HVD_API int hvd_not_finite(char* text, size_t size, size_t* length);

/** A 64-bit hash, by which ranks compare data that should be equal. A change of one aligned word of 8 bytes always
 * changes the hash. All builds of one version give the same hash. It is no protection against an attacker. data:
 * [bytes], in host memory. Any thread, also outside a world. */
HVD_API uint64_t hvd_hash(const void* data, size_t bytes);

/** Parts of a step in which the training thread does other work, for the report on steps. */
enum hvd_part {
  HVD_PART_INPUT = 1,   /**< asks a data loader for the next batch */
  HVD_PART_COLLECT = 2, /**< collects garbage */
  HVD_PART_SAVE = 3,    /**< writes a checkpoint */
  HVD_PART_FUTURE = 4,  /**< from any thread. begin: the thread asks for the end of an operation; end: it gets the
                           answer. The rank waits from the last request until the last answer */
  HVD_PART_FETCH = 5,   /**< from any thread for which the training thread waits: HVD_PART_INPUT inside of a compiled
                           program of TensorFlow's */
  HVD_PART_INPUT_TORCH = 6,      /**< HVD_PART_INPUT of torch's DataLoader */
  HVD_PART_INPUT_TENSORFLOW = 7, /**< HVD_PART_INPUT of tf.data */
  HVD_PART_COMPILE = 8           /**< compiles the program, as JAX and torch.compile do */
};
/**
 * hvd_part_begin(), hvd_part_end(): the begin and the end of such a part. Parts may be nested; time then counts for the
 * innermost part. Operations may be waited for in a part. Only calls from the training thread count: the thread that
 * last called hvd_init() or hvd_step_end(). hvd_step_end(): a step of the training ends, on each rank. If no rank calls
 * it, rounds of equal operations count as steps. Without hvd_init() or hvdrun these functions do nothing. Each call
 * costs about 0.1 us.
 */
HVD_API void hvd_part_begin(int part);
HVD_API void hvd_part_end(int part);
HVD_API void hvd_step_end(void);

/** For the report on steps. ns: the time since the last call in which a data loader's worker processes have made
 * batches. With w workers: their sum divided by w. The batches of a step take at least the time that the report shows
 * for them. Any thread. */
HVD_API void hvd_batches_made(int64_t ns);

/**
 * The report on the job's last half minute, from hvdrun, at most some seconds old. It is JSON, as hvd.report() in
 * Python shows it. The first call requests the report, and returns none. text: [size], may be NULL if size is 0.
 * *length: bytes of the report; 0: no report has come, or there is no hvdrun. HVD_USAGE if size is less. Any thread.
 */
HVD_API int hvd_report(char* text, size_t size, size_t* length);

/** The traffic from this rank to a rank of another host since they connected. Only the runtime's own TCP counts it. */
typedef struct hvd_link {
  int peer;              /**< rank of the world */
  char card[16];         /**< the network interface of this host; "": only one reaches the peer */
  int64_t bytes;         /**< bytes that have arrived at the peer */
  int64_t busy_ns;       /**< the time for which bytes waited for the network */
  int64_t round_trip_ns; /**< the minimum so far; 0: unknown */
} hvd_link;

/** A link for each peer; if several network interfaces reach the peer, a link for each of them. links: [room], filled
 * with at most room links. *count: the number of links; 0 on one host, and over MPI. Any thread; fails before
 * hvd_init(). */
HVD_API int hvd_links(hvd_link* links, size_t room, size_t* count);

/** Text of the last failure on this thread; "" if none. Valid until the thread's next call. */
HVD_API const char* hvd_last_error(void);

/** "0.1.0" */
HVD_API const char* hvd_version(void);

#ifdef __cplusplus
}
#endif
#endif
