/**
 * @file hvd.h — the C interface of libhvd, the collective runtime of hvdrun.
 *
 * The one installed header: C11, no dependencies.  Every framework adapter, the
 * Python package and the tools use this and nothing below it.
 *
 * Conventions
 *   - Every function returns an hvd_status unless it says otherwise.  On failure
 *     hvd_last_error() returns one line of text for the calling thread.
 *   - All counts are 64 bit.  Tensors are dense and row-major.
 *   - All functions may be called from any thread, except hvd_init and
 *     hvd_shutdown, which must not run at the same time as each other.
 *   - Memory that the caller passes stays the caller's.  `in` must stay readable
 *     and unchanged, `out` writable and unread, until the handle is done.
 *   - After fork() the child must not call anything here but hvd_is_initialized.
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

/** Who has to act.  The same numbers are the exit codes of hvdrun(1). */
typedef enum hvd_status {
  HVD_OK = 0,
  HVD_USAGE = 2,       /**< the caller passed something wrong; retrying is useless */
  HVD_MISMATCH = 3,    /**< ranks disagree on shape, dtype, op, root, factors */
  HVD_UNAVAILABLE = 4, /**< library, device or host is not there */
  HVD_PEER_LOST = 5,   /**< a rank ended or died */
  HVD_TIMEOUT = 6,     /**< nothing happened for longer than allowed */
  HVD_INTERNAL = 70    /**< a bug of ours */
} hvd_status;

/** The operations: X(enumerator, number, word, name).  word names it in C++, name in messages, timelines and in front
 * of a tensor's name. */
#define HVD_KINDS(X)                                      \
  X(HVD_ALLREDUCE, 0, allreduce, "allreduce")             \
  X(HVD_ALLGATHER, 1, allgather, "allgather")             \
  X(HVD_BROADCAST, 2, broadcast, "broadcast")             \
  X(HVD_ALLTOALL, 3, alltoall, "alltoall")                \
  X(HVD_REDUCESCATTER, 4, reducescatter, "reducescatter") \
  X(HVD_BARRIER, 5, barrier, "barrier")                   \
  X(HVD_JOIN, 6, join, "join")

/** The types of elements: X(enumerator, number, word, name, bytes of one element).  word names it in C++; name is
 * NumPy's, torch's and JAX's.
 *
 * Floating point of 8 and 16 bits is added up, multiplied and scaled in f32, and the result rounded once, to the
 * nearest (ties to even), however many ranks and nodes there are; on GPUs see HVD_NCCL_WIDE in hvdrun(1).  What is too
 * large becomes infinity, in e4m3fn NaN: nothing saturates.  HVD_ADASUM takes all floating point.
 * HVD_F8E4M3: no infinity, NaN is 0x7f and 0xff, largest 448.  HVD_F8E5M2: as f16 with a fraction of 2 bits, largest
 * 57344. */
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
  X(HVD_F8E5M2, 12, f8e5m2, "float8_e5m2", 1)

/** The reductions: X(enumerator, number, word, name).  Numbers and names are Horovod's.  Average of integers divides
 * and truncates. */
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
  uint32_t struct_size; /**< sizeof(hvd_request): lets the struct grow */
  int32_t kind;         /**< hvd_kind */
  int32_t dtype;        /**< hvd_dtype */
  int32_t reduce;       /**< hvd_reduce; allreduce and reducescatter only */
  const char* name;     /**< same on all ranks; NULL: made from the order of calls; copied */
  const int64_t* shape; /**< [ndim], each >= 0; copied */
  int32_t ndim;         /**< 0 to 64; 0 is a scalar, one element */
  int32_t root;         /**< broadcast: rank within the set */
  int32_t set;          /**< process set, HVD_GLOBAL_SET */
  int32_t device;       /**< HVD_HOST_DEVICE, or a CUDA ordinal */
  double prescale;      /**< multiplies the input; 0 is read as 1 only if postscale is 0 too */
  double postscale;     /**< multiplies the result */
  const void* in;       /**< [elements]; may be NULL when there are no elements */
  void* out;            /**< allreduce, broadcast: [elements], may equal in. Others: NULL, or see out_bytes */
  const int64_t*
      splits; /**< alltoall: [num_splits = size of the set] rows for each member; copied. NULL: equal parts */
  int32_t num_splits;
  void* stream;     /**< device >= 0: the CUstream that makes `in` and will use the result; NULL: the default stream;
                         HVD_WHOLE_CONTEXT: whoever makes it */
  size_t out_bytes; /**< reducescatter, alltoall: of `out`, on the same device. A result of just so many bytes is put
                       there, any other is hvd_take's. `out` may be where this rank's own part of `in` is
                       (reducescatter); else they do not overlap */
} hvd_request;      /**< a shorter one, without out_bytes, without stream or without the splits too, is accepted, by its
                         struct_size */

/** Tensors on a GPU.  `in` and `out` are device memory of `device`, one GPU for each rank and process set; all ranks'
 *  are on GPUs, or none's.  `stream` lives until the operation has ended.  The operation begins when what `stream` had
 *  been given at submission is done.  hvd_wait returns when the work is queued on the GPU, and has `stream` wait for
 * it: the host does not.  So the result may be used by what is put on `stream` afterwards; other streams need
 * hvd_after.  hvd_poll tells when it has really arrived.  A result of hvd_take is device memory too; hvd_free gives it
 * back once `stream` is through with what it was given before.  NCCL carries them where all ranks have it, else host
 * memory.
 *
 *  CUDA graphs: other threads may capture what they like meanwhile.  While `stream` is being captured, submission is
 *  refused (HVD_USAGE, nothing was taken), and so is the wait of a stream for a result (hvd_wait, hvd_wait_many,
 *  hvd_after: HVD_USAGE, the handle stays as it is, and the call may come again behind the capture). */

/** For a caller that does not know its framework's stream (hvd_request.stream).  The operation begins when what the
 * GPU's primary context had been given at submission, on all of its streams, is done.  hvd_wait then has no stream
 * wait: the result may be used once hvd_poll says that it has arrived, and one of hvd_take is given back (hvd_free)
 * when nothing uses it anymore.  hvd_run and hvd_after, which give no handle to poll and have a stream wait, refuse it
 * (HVD_USAGE).  Needs a driver for CUDA 12.5 (HVD_UNAVAILABLE), and while a stream of the context is being captured it
 * is refused (HVD_USAGE); the driver voids that capture (cuCtxRecordEvent). */
#define HVD_WHOLE_CONTEXT ((void*)-1)

typedef int64_t hvd_handle; /**< > 0 */

typedef struct hvd_init_options {
  uint32_t struct_size;
  const int32_t* ranks; /**< [num_ranks] of the launch that form the world, NULL: all */
  int32_t num_ranks;
} hvd_init_options;

/** Joins the world that the launcher made; without a launcher, a world of one.
 *  Collective over the launch.  options may be NULL.  Calling it when initialised does nothing. */
HVD_API int hvd_init(const hvd_init_options* options);

/** Collective.  Operations under way end with HVD_PEER_LOST.  hvd_init works again afterwards. */
HVD_API int hvd_shutdown(void);

/** 1 or 0. Never fails. */
HVD_API int hvd_is_initialized(void);

/** Where this rank stands; all are filled in by one call.  HVD_USAGE before hvd_init. */
typedef struct hvd_world {
  int32_t rank, size;
  int32_t local_rank, local_size; /**< among the ranks of this host */
  int32_t cross_rank, cross_size; /**< host index, hosts, among hosts that have this local_rank */
  int32_t homogeneous;            /**< every host has the same number of ranks */
  int32_t mpi_threads;            /**< other threads may call MPI: it was started for that, or not by us */
} hvd_world;
HVD_API int hvd_get_world(hvd_world* world);

/** For a rank that an elastic job has started while others train, before hvd_init: its place in the next world, as
 * hvdrun expects it.  Waits for nobody.  The rank is in no world yet, and nobody waits for it: it prepares its work,
 * then calls hvd_init, and hvd_get_world says its real place.  HVD_UNAVAILABLE without hvdrun, and for a rank that is
 * needed no more. */
HVD_API int hvd_expect(hvd_world* world);

/** Process sets: some of the ranks, with operations of their own that never wait for those of another set.
 *  In a set, ranks, root and splits count by the set's own order: its rank i is ranks[i].  HVD_GLOBAL_SET is the world.
 *
 *  Both are collective over the world, members and others, and may be called from several threads.  ranks: [count]
 *  world ranks, distinct.  *set: a new number > 0, the same on all ranks.  HVD_USAGE on all ranks for the ranks of a
 *  living set, in any order; HVD_UNAVAILABLE on all when one has no memory for it. */
HVD_API int hvd_set_add(const int32_t* ranks, int32_t count, int32_t* set);
/** Operations under way in the set end with HVD_USAGE.  So does this for the global set and for unknown ones. */
HVD_API int hvd_set_remove(int32_t set);
/** *rank: this rank's place in the set, -1: not a member.  ranks: [*size] world ranks, or NULL. */
HVD_API int hvd_set_get(int32_t set, int32_t* rank, int32_t* size, int32_t* ranks);

/** Hands one tensor to the runtime and returns at once.  HVD_USAGE when an operation of that name is under way. */
HVD_API int hvd_submit(const hvd_request* request, hvd_handle* handle);

/** Hands over count tensors in one call; with HVD_GROUP they become ready, and run, together.
 *  handles: [count].  All are for one process set.  All or nothing: on failure no tensor was taken. */
#define HVD_GROUP 1u
HVD_API int hvd_submit_many(const hvd_request* requests, size_t count, uint32_t flags, hvd_handle* handles);

/** *done = 1 when the operation has ended, well or not; the handle stays valid. */
HVD_API int hvd_poll(hvd_handle handle, int* done);

/** Waits until the operation ends and returns its status; HVD_TIMEOUT when timeout_seconds passed first
 *  (negative: no limit), then the handle is still under way.  The waiting thread may run the engine itself. */
HVD_API int hvd_wait(hvd_handle handle, double timeout_seconds);
/** hvd_wait for each of count handles: the status of the first that failed, once all have ended; HVD_TIMEOUT when some
 *  are still under way after timeout_seconds.  All handles stay valid.  handles: [count]. */
HVD_API int hvd_wait_many(const hvd_handle* handles, size_t count, double timeout_seconds);

/** Has ended(context) called once, when the operation has ended, or here and now when it has already.  The calling
 * thread is whichever ended it, often the runtime's own and in the midst of other work: ended must return at once, and
 * must call nothing of libhvd but hand the news to another thread.  For frameworks that must not block a thread of
 * theirs in hvd_wait.  Once per handle: HVD_USAGE the second time. */
HVD_API int hvd_notify(hvd_handle handle, void (*ended)(void* context), void* context);

/** reducescatter: each member gets its part of the rows, in order; the first (rows mod size) get one more. */

/** The result of a finished operation whose size only the ranks together know (allgather, alltoall, reducescatter).
 *  *data: [prod(shape)], malloc'd, now the caller's: hvd_free.  shape: [64] is filled, *ndim set.  Works once.
 *  HVD_USAGE where it is in hvd_request.out. */
HVD_API int hvd_take(hvd_handle handle, void** data, int64_t* shape, int32_t* ndim);
HVD_API void hvd_free(void* data);

/** Registered memory: zeroed, page-aligned, populated at once, seen by all ranks of this node.  An allreduce whose
 * tensor lies there on every rank of the node is done straight between the ranks' arrays; nothing else about it
 * differs.  Works before hvd_init, after hvd_shutdown and in a world of one; where the system allows none it is
 * ordinary memory. hvd_free gives it back, when no operation on it is under way.  After fork() parent and child share
 * it. HVD_UNAVAILABLE when there is not so much memory. */
HVD_API int hvd_alloc(size_t bytes, void** data);

/** The rows that came from each member of the set in a finished alltoall (or allgather).
 *  splits: [size of the set] is filled. */
HVD_API int hvd_take_splits(hvd_handle handle, int64_t* splits);

/** HVD_JOIN: this rank has no more data.  It is submitted like any operation (only set counts; no other may follow
 * until it has ended), and ends when all ranks of the set have joined.  Until then this rank takes part in what the
 * others submit, with zeros (an average still divides by the size of the set), or no rows; what it has under way goes
 * on. Min, Max, Product, a broadcast whose root has joined and a change of process sets end with HVD_MISMATCH.
 *  *last_rank: the world rank that joined last, once the operation has ended. */
HVD_API int hvd_join_result(hvd_handle handle, int32_t* last_rank);

/** For an operation on device memory that has been waited for: what is put on stream (a CUstream of that GPU) from now
 *  on comes after it.  For one on host memory it does nothing. */
HVD_API int hvd_after(hvd_handle handle, void* stream);

/** Forgets a handle.  One that is under way is forgotten when it ends. */
HVD_API int hvd_release(hvd_handle handle);
/** The same for count handles.  HVD_USAGE when some were unknown, or released before; the others are released. */
HVD_API int hvd_release_many(const hvd_handle* handles, size_t count);

/** Blocking operation in one call: submit, wait, release.  The fast path for small tensors. */
HVD_API int hvd_run(const hvd_request* request);

/** Starts the timeline on this rank (HOROVOD_TIMELINE does it at init).  path is used when no launcher collects it. */
HVD_API int hvd_timeline_start(const char* path, int mark_cycles);
HVD_API int hvd_timeline_stop(void);

/** What this build and machine offer: "mpi", "shm", "cuda" (the driver's version, 13000, where there is a GPU), "nccl"
 *  (its version, 23007), "kernels" (those for the GPU were built); 0 when absent. */
HVD_API int hvd_built(const char* what);

/** Fusion buffers and results on GPUs come from the allocator of that framework ("torch") from now on.  HVD_UNAVAILABLE
 *  where it is not in this process, offers none, or HVD_TORCH_MEMORY=0: then they come from the driver, as before. */
HVD_API int hvd_use_memory(const char* framework);

/** After HVD_PEER_LOST: 1 when whoever left the world did so by hvd_shutdown, and no rank is known to have died, so
 * that all can call hvd_init again.  Also 1 outside a world, which this rank itself has left then. */
HVD_API int hvd_departed(void);

/** HVD_OK while operations of the world and its sets work, else the error by which they ended.  An operation on GPUs is
 * over when it is queued; where a rank is lost later, its result is cut off.  So before results are kept: wait until
 * the GPUs have finished, then call this. */
HVD_API int hvd_check_world(void);

/** What the thread that trains does besides its own work, for the report on steps. */
enum hvd_part {
  HVD_PART_INPUT = 1,   /**< asks a data loader for the next batch */
  HVD_PART_COLLECT = 2, /**< collects garbage */
  HVD_PART_SAVE = 3,    /**< writes a checkpoint */
  HVD_PART_FUTURE = 4, /**< from any thread: asked for the end of an operation; was told of it.  From the last one asked
                            for until the last one told of the rank waits */
  HVD_PART_FETCH = 5,  /**< from any thread, where the one that trains waits for it: HVD_PART_INPUT inside of a compiled
                            program of TensorFlow's */
  HVD_PART_INPUT_TORCH = 6,     /**< HVD_PART_INPUT of torch's DataLoader */
  HVD_PART_INPUT_TENSORFLOW = 7 /**< HVD_PART_INPUT of tf.data */
};
/**
 * hvd_part_begin(), hvd_part_end(): such a part.  Parts may lie within one another, and operations may be waited for in
 * them: time counts for the innermost.  Calls from threads other than the one that has called hvd_init(), or
 * hvd_step_end() last, do not count.  hvd_step_end(): a step of the training ends, on each rank; where nobody tells,
 * rounds of equal operations count as steps.  Without hvd_init() or hvdrun they do nothing.  They cost about 0.1 us.
 */
HVD_API void hvd_part_begin(int part);
HVD_API void hvd_part_end(int part);
HVD_API void hvd_step_end(void);

/** For the report on steps: a data loader's worker processes have made batches for so long, ns, since it was told last;
 * of w workers, a w-th of their sum.  What a step is told of this is the least that its batches take.  Any thread. */
HVD_API void hvd_batches_made(int64_t ns);

/**
 * The report on the job's last half minute, from hvdrun, at most some seconds old: JSON, as hvd.report() in Python
 * shows it.  The first call asks for it, and finds none.  text: [size], may be NULL where size is 0.  *length: bytes of
 * the report; 0: there is none (yet), or no hvdrun.  HVD_USAGE where size is less.  Any thread.
 */
HVD_API int hvd_report(char* text, size_t size, size_t* length);

/** What has gone from this rank to one of another host by the runtime's own TCP, since they have met. */
typedef struct hvd_link {
  int peer;              /**< rank of the world */
  char card[16];         /**< of this host; "": only one reaches the peer */
  int64_t bytes;         /**< that have arrived there */
  int64_t busy_ns;       /**< so long the network was what they waited for */
  int64_t round_trip_ns; /**< the least so far; 0: unknown */
} hvd_link;

/** A link for each peer, and where several cards reach it, for each of them.  links: [room], filled as far as it goes.
 * *count: so many there are; 0 on one host, and over MPI.  Any thread; fails before hvd_init(). */
HVD_API int hvd_links(hvd_link* links, size_t room, size_t* count);

/** Text of the last failure on this thread; "" when none.  Valid until the thread's next call. */
HVD_API const char* hvd_last_error(void);

/** "0.1.0" */
HVD_API const char* hvd_version(void);

#ifdef __cplusplus
}
#endif
#endif
