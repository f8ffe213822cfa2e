/// @file nccl.cc — NCCL without a GPU: ranks are threads or processes of one machine, over shared memory.
///
/// This file has NCCL's C interface. Calls are queued on the fake driver's streams and run there (group.h), so they
/// complete late, like the real ones. Communicators never block: a join and every group take a few polls, and only then
/// is a group's work on the stream. Calls that NCCL forbids are errors here. Before 2.27 a thread may not begin a
/// second group while one of another communicator is in progress. No call may use a communicator in progress.
/// ncclCommAbort waits for the work of other communicators on the device.
/// Environment: FAKE_NCCL_VERSION (23007), FAKE_NCCL_FAIL="ncclAllReduce:2:3" (the second call of it, and all later
/// ones, return 3), FAKE_NCCL_ASYNC="4:6" (after the fourth group the communicator is in error 6, and no group ends),
/// FAKE_NCCL_ENDLESS (if it is set, new groups end only when they are aborted), FAKE_NCCL_NO_WINDOW (if it is set,
/// ncclCommWindowRegister makes no window).
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda/kernels.h"
#include "gpu/nccl/communicator/library.h"
#include "group.h"
#include "stream.h"

using namespace fake;
using namespace hvd::nccl;

namespace {

thread_local int depth = 0;
/// Never freed: they are used at exit too, after the thread's own destructors. The pointer is kept, so that no leak is
/// reported.
std::vector<Call>& calls_of_a_thread() {
  static std::mutex mutex;
  static auto* all = new std::deque<std::vector<Call>>;
  std::lock_guard lock(mutex);
  return all->emplace_back();
}
thread_local std::vector<Call>& calls = calls_of_a_thread();

int number(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : fallback;
}

std::mutex counted;
std::map<std::string, int>& counts() {
  static auto* all = new std::map<std::string, int>;
  return *all;
}

/// Counts a call. Returns its error code; 0: go on.
int failure(const char* function) {
  std::lock_guard lock(counted);
  const int count = ++counts()[function];
  const char* text = std::getenv("FAKE_NCCL_FAIL");
  if (!text) return 0;
  char name[64];
  int from = 0, code = 0;
  if (std::sscanf(text, "%63[^:]:%d:%d", name, &from, &code) != 3 || std::strcmp(name, function) != 0) return 0;
  return count >= from ? code : 0;
}

extern "C" int cuCtxGetDevice(int* device);
extern "C" int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes);
constexpr int unhandled_cuda_error = 1;
std::atomic<int> at_work[64];  ///< [device] the number of jobs on its streams

bool in_progress_now(const Communicator& c) { return c.looks.load() > 0 || c.made || (!c.joined && !c.blocking); }

/// The communicator of this thread's operations in progress. Destroyed communicators are forgotten.
thread_local Communicator* of_this_thread = nullptr;
std::mutex living_mutex;
std::set<const Communicator*>& living() {
  static auto* all = new std::set<const Communicator*>;
  return *all;
}

void live(const Communicator& c) {
  std::lock_guard lock(living_mutex);
  living().insert(&c);
}

/// Before 2.27: see above.
bool mixed_up(Communicator& c, const char* name) {
  if (number("FAKE_NCCL_VERSION", 23007) < 22700 && of_this_thread && of_this_thread != &c) {
    std::lock_guard lock(living_mutex);
    if (living().count(of_this_thread) && in_progress_now(*of_this_thread)) {
      std::fprintf(stderr, "fake NCCL: %s on a thread that has another communicator's group under way\n", name);
      return true;
    }
  }
  of_this_thread = &c;
  return false;
}

void put_on_stream(Communicator& c) {
  for (auto [stream, work] : std::exchange(c.queued, {}))
    fake_cuda_enqueue_owned(
        stream, [](void* context) { (*static_cast<std::function<void()>*>(context))(); }, work,
        [](void* context) { delete static_cast<std::function<void()>*>(context); });
}

/// FAKE_NCCL_STUCK="3:1": the third group, and all later ones, of communicators that block stay in ncclGroupEnd until
/// the communicator is aborted; "3:2": for ever. Returns whether the communicator was aborted; it is destroyed then.
bool blocked(Communicator& c) {
  int from = 0, how = 0;
  const char* text = std::getenv("FAKE_NCCL_STUCK");
  if (!text || std::sscanf(text, "%d:%d", &from, &how) != 2 || ++c.blocked_groups < from) return false;
  const timespec pause{0, 1000000};
  c.inside.fetch_add(1);
  while (how == 2 || !c.aborted.load()) nanosleep(&pause, nullptr);
  c.inside.fetch_sub(1);
  return true;
}

void begin_job(Communicator& c) {
  c.jobs.fetch_add(1);
  at_work[c.device].fetch_add(1);
}

int submit() {
  bool all_block = true;
  std::map<std::pair<Communicator*, void*>, std::vector<Call>> jobs;
  for (const Call& c : calls) jobs[{c.comm, c.stream}].push_back(c);
  calls.clear();
  for (auto& [key, job] : jobs) {
    Communicator& c = *key.first;
    int after = 0, code = 0;
    const char* text = std::getenv("FAKE_NCCL_ASYNC");
    if (text && std::sscanf(text, "%d:%d", &after, &code) == 2 && ++c.groups >= after) c.error = code;
    if (mixed_up(c, "a group")) {
      calls.clear();
      return invalid_usage;
    }
    c.looks = c.blocking ? 0 : 2;
    const bool captured = fake_cuda_capturing(key.second) != 0;
    if (!captured) begin_job(c);
    std::shared_ptr<Communicator> graph;  // counts the group while its graph exists
    if (captured) {
      c.graphs.fetch_add(1);
      graph = {&c, [](Communicator* of) { of->graphs.fetch_sub(1); }};
    }
    const bool hangs = c.error.load() != success || std::getenv("FAKE_NCCL_ENDLESS");
    auto* work = new std::function<void()>([&c, graph, job = std::move(job), hangs, captured] {
      if (captured) begin_job(c);
      const timespec pause{0, 1000000};
      while (hangs && !c.aborted.load()) nanosleep(&pause, nullptr);
      carry_out(c, job);
      at_work[c.device].fetch_sub(1);
      c.jobs.fetch_sub(1);
    });
    graph.reset();
    c.queued.emplace_back(key.second, work);
    if (c.blocking && blocked(c)) return 2;
    if (hangs || c.blocking) put_on_stream(c);
    all_block &= c.blocking;
  }
  return all_block ? success : in_progress;
}

int add(const char* name, const Call& call) {
  if (const int code = failure(name)) return code;
  if (!call.comm || call.comm->aborted.load()) return invalid_usage;
  if (in_progress_now(*call.comm)) {
    std::fprintf(stderr, "fake NCCL: %s on a communicator that is still in progress\n", name);
    return invalid_usage;
  }
  calls.push_back(call);
  return depth > 0 ? success : submit();
}

Communicator* comm_of(Comm c) { return static_cast<Communicator*>(c); }

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int ncclGetVersion(int* version) {
  *version = number("FAKE_NCCL_VERSION", 23007);
  return 0;
}
FAKE int ncclGetUniqueId(UniqueId* id) {
  if (const int code = failure("ncclGetUniqueId")) return code;
  static std::atomic<int> made{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->bytes, sizeof id->bytes, "/hvd-fake-nccl-%d-%d", getpid(), ++made);
  return 0;
}
FAKE int ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, NcclConfig* config) {
  if (const int code = failure("ncclCommInitRankConfig")) return code;
  if (config->magic != 0xcafebeefu || ranks > most_ranks) return invalid_usage;
  int device = 0;  // of the current context, as cudaGetDevice tells NCCL
  if (cuCtxGetDevice(&device) != 0) return unhandled_cuda_error;
  Communicator* c = open_communicator(id.bytes, rank, ranks);
  if (!c) return 2;
  c->device = device;
  live(*c);
  if (mixed_up(*c, "ncclCommInitRankConfig")) return invalid_usage;
  if (config->blocking == 0) {  // NCCL joins in a thread of its own, in the default capture mode
    int code = 0;
    std::thread([&code] { code = fake_cuda_unsafe(); }).join();
    if (code != 0) c->error = unhandled_cuda_error;
  } else {
    const timespec pause{0, 1000000};
    while (c->segment->joined.load() < ranks) nanosleep(&pause, nullptr);
    shm_unlink(c->name.c_str());
    c->blocking = c->joined = true;
    c->looks = 0;
  }
  *comm = c;
  return c->blocking ? success : in_progress;
}
#if !defined(FAKE_NCCL_NO_SPLIT)
FAKE int ncclCommSplit(Comm comm, int color, int key, Comm* made, NcclConfig* config) {
  Communicator* c = comm_of(comm);
  if (const int code = failure("ncclCommSplit")) return code;
  if (config->magic != 0xcafebeefu || c->rounds == most_rounds) return invalid_usage;
  if (c->looks.load() > 0 || c->jobs.load() > 0 || !c->joined || c->made) {
    std::fprintf(stderr, "fake NCCL: ncclCommSplit on a communicator that is at work\n");
    return invalid_usage;
  }
  if (mixed_up(*c, "ncclCommSplit")) return invalid_usage;
  *made = nullptr;
  c->made_blocks = config->blocking != 0;
  begin_split(*c, color, key, reinterpret_cast<Communicator**>(made));
  return in_progress;
}
#endif
FAKE int ncclMemAlloc(void** data, std::size_t bytes) {
  if (const int code = failure("ncclMemAlloc")) return code;
  return cuMemAlloc_v2(reinterpret_cast<unsigned long long*>(data), bytes) == 0 ? success : unhandled_cuda_error;
}
FAKE int ncclCommRegister(Comm comm, void* data, std::size_t, void** handle) {
  if (const int code = failure("ncclCommRegister")) return code;
  if (in_progress_now(*comm_of(comm))) return invalid_usage;
  *handle = data;
  return success;
}
FAKE int ncclCommWindowRegister(Comm comm, void* data, std::size_t bytes, void** window, int) {
  Communicator* c = comm_of(comm);
  if (const int code = failure("ncclCommWindowRegister")) return code;
  if (in_progress_now(*c) || c->rounds == most_rounds || !meet(*c, static_cast<int>(bytes >> 12))) return invalid_usage;
  *window = std::getenv("FAKE_NCCL_NO_WINDOW") ? nullptr : data;
  return success;
}
FAKE int ncclCommAbort(Comm comm) {
  Communicator* c = comm_of(comm);
  c->aborted = true;
  {
    std::lock_guard lock(living_mutex);
    living().erase(c);
  }
  const timespec pause{0, 1000000};
  while (c->inside.load() > 0) nanosleep(&pause, nullptr);
  for (auto& [stream, work] : c->queued) {
    delete work;
    c->jobs.fetch_sub(1);
    at_work[c->device].fetch_sub(1);
  }
  while (c->graphs.load() > 0) nanosleep(&pause, nullptr);                    // as NCCL does (commDestroySync)
  while (c->jobs.load() > 0 || at_work[c->device].load() > 0) sched_yield();  // it frees memory: cudaFree waits
  munmap(c->segment, sizeof(Segment));
  shm_unlink(c->name.c_str());
  delete c;
  return 0;
}
FAKE int ncclCommGetAsyncError(Comm comm, int* error) {
  Communicator* c = comm_of(comm);
  *error = c->error.load();
  if (*error != success) return 0;
  if (!c->joined) {
    c->joined = c->segment->joined.load() == c->size;
    if (c->joined) shm_unlink(c->name.c_str());
    *error = in_progress;
  } else if (c->made) {
    Communicator** made = c->made;
    if (!finish_split(*c)) {
      *error = in_progress;
    } else if (*made) {
      (*made)->device = c->device;
      (*made)->blocking = c->made_blocks;
      live(**made);
    }
  } else if (c->looks.load() > 0) {
    if (c->looks.fetch_sub(1) == 1) put_on_stream(*c);
    *error = in_progress;
  }
  return 0;
}
#if !defined(FAKE_NCCL_INCOMPLETE)
FAKE int ncclRedOpCreatePreMulSum(RedOp* op, void* scalar, int type, int, Comm comm) {
  if (const int code = failure("ncclRedOpCreatePreMulSum")) return code;
  if (in_progress_now(*comm_of(comm))) {
    std::fprintf(stderr, "fake NCCL: ncclRedOpCreatePreMulSum on a communicator that is still in progress\n");
    return invalid_usage;
  }
  double factor = 0;
  float f = 0;
  hvd::f16 half;
  hvd::bf16 brain;
  switch (type) {
    case 6:
      std::memcpy(&half, scalar, sizeof half);
      factor = static_cast<double>(hvd::wide(half));
      break;
    case 7:
      std::memcpy(&f, scalar, sizeof f);
      factor = static_cast<double>(f);
      break;
    case 8:
      std::memcpy(&factor, scalar, sizeof factor);
      break;
    case 9:
      std::memcpy(&brain, scalar, sizeof brain);
      factor = static_cast<double>(hvd::wide(brain));
      break;
    default:
      return invalid_usage;
  }
  Communicator* c = comm_of(comm);
  c->ops.push_back({type, factor});
  *op = first_made_op + static_cast<int>(c->ops.size()) - 1;
  return 0;
}
#endif
FAKE int ncclRedOpDestroy(RedOp, Comm) { return failure("ncclRedOpDestroy"); }
FAKE int ncclAllReduce(const void* in, void* out, std::size_t count, int type, RedOp op, Comm comm, void* stream) {
  return add("ncclAllReduce", {Kind::all_reduce, in, out, count, type, op, 0, comm_of(comm), stream});
}
FAKE int ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, Comm comm, void* stream) {
  return add("ncclBroadcast", {Kind::broadcast, in, out, count, type, 0, root, comm_of(comm), stream});
}
FAKE int ncclReduce(const void* in, void* out, std::size_t count, int type, RedOp op, int root, Comm comm,
                    void* stream) {
  return add("ncclReduce", {Kind::reduce, in, out, count, type, op, root, comm_of(comm), stream});
}
FAKE int ncclAllGather(const void* in, void* out, std::size_t count, int type, Comm comm, void* stream) {
  return add("ncclAllGather", {Kind::all_gather, in, out, count, type, 0, 0, comm_of(comm), stream});
}
FAKE int ncclReduceScatter(const void* in, void* out, std::size_t count, int type, RedOp op, Comm comm, void* stream) {
  return add("ncclReduceScatter", {Kind::reduce_scatter, in, out, count, type, op, 0, comm_of(comm), stream});
}
FAKE int ncclSend(const void* in, std::size_t count, int type, int peer, Comm comm, void* stream) {
  return add("ncclSend", {Kind::send, in, nullptr, count, type, 0, peer, comm_of(comm), stream});
}
FAKE int ncclRecv(void* out, std::size_t count, int type, int peer, Comm comm, void* stream) {
  return add("ncclRecv", {Kind::receive, nullptr, out, count, type, 0, peer, comm_of(comm), stream});
}
FAKE int ncclGroupStart() {
  ++depth;
  return 0;
}
FAKE int ncclGroupEnd() {
  if (const int code = failure("ncclGroupEnd")) return code;
  return --depth > 0 || calls.empty() ? success : submit();
}
FAKE const char* ncclGetErrorString(int code) {
  return code == 2              ? "unhandled system error"
         : code == 3            ? "internal error"
         : code == 5            ? "invalid usage"
         : code == remote_error ? "remote process exited or there was a network error"
                                : "a fake error";
}
FAKE const char* ncclGetLastError(Comm) { return "said by the fake\n"; }
/// For tests: the number of its calls in this process.
FAKE int fake_nccl_calls(const char* function) {
  std::lock_guard lock(counted);
  return counts()[function];
}
