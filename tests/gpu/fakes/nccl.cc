/// @file nccl.cc — NCCL without a GPU: ranks are threads or processes of one machine, over shared memory.
///
/// Calls are queued on the fake driver's streams and run there, so they come late,
/// like the real ones.  Every pair of ranks has a mailbox; a group's messages are
/// carried in order, and each says what it belongs to: ranks that call differently
/// are told.  Communicators never block: joining and every group take a few looks.
/// Environment: FAKE_NCCL_VERSION (23007), FAKE_NCCL_FAIL="ncclAllReduce:2:3" (the second call of it, and all later
/// ones, return 3), FAKE_NCCL_ASYNC="4:6" (after the fourth group the communicator is in error 6, and nothing ends).
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/kernels.h"
#include "ops/nccl/library.h"
#include "stream.h"

using namespace hvd::nccl;

namespace {

constexpr int invalid_usage = 5;
constexpr int most_ranks = 16;
constexpr std::size_t box_bytes = 16 << 10;

struct Mailbox {
  std::atomic<std::uint32_t> full;
  std::uint32_t bytes, kind;
  std::uint64_t total;
  unsigned char data[box_bytes];
};

struct Segment {
  std::atomic<int> joined;
  Mailbox boxes[most_ranks * most_ranks];  ///< [from * most_ranks + to]
};

struct Premultiplied {
  int type;
  double factor;
};

struct Communicator {
  Segment* segment = nullptr;
  std::string name;
  int rank = 0, size = 0;
  std::atomic<int> error{success}, looks{0}, jobs{0};
  std::atomic<bool> aborted{false};
  bool joined = false;
  int groups = 0;
  std::vector<Premultiplied> ops;
};

enum class Kind : std::uint32_t { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, receive };

struct Call {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  int type;
  RedOp op;
  int peer;
  Communicator* comm;
  void* stream;
};

thread_local int depth = 0;
thread_local std::vector<Call> calls;

int number(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : fallback;
}

int failure(const char* function) {
  static std::mutex mutex;
  static std::map<std::string, int> counts;
  const char* text = std::getenv("FAKE_NCCL_FAIL");
  if (!text) return 0;
  char name[64];
  int from = 0, code = 0;
  if (std::sscanf(text, "%63[^:]:%d:%d", name, &from, &code) != 3 || std::strcmp(name, function) != 0) return 0;
  std::lock_guard lock(mutex);
  return ++counts[name] >= from ? code : 0;
}

std::size_t bytes_of(int type) {
  constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return bytes[type];
}

// ---- arithmetic

template <class T>
double read(T x) {
  return static_cast<double>(hvd::cuda::wide(x));
}
template <class T>
void write(T& to, double x) {
  hvd::cuda::narrow(static_cast<decltype(hvd::cuda::wide(to))>(x), to);
}

template <class W>
W combine(RedOp op, W a, W b) {
  switch (op) {
    case product:
      return a * b;
    case min:
      return std::min(a, b);
    case max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

template <class T>
void reduce_floats(const std::vector<const void*>& from, void* to, std::size_t count, RedOp op, double factor) {
  for (std::size_t i = 0; i < count; ++i) {
    double total = 0;
    for (std::size_t r = 0; r < from.size(); ++r) {
      T x = static_cast<const T*>(from[r])[i];
      if (factor != 1) write(x, read(x) * factor);
      total = r == 0 ? read(x) : combine(op, total, read(x));
    }
    write(static_cast<T*>(to)[i], total);
  }
}

template <class T>
void reduce_integers(const std::vector<const void*>& from, void* to, std::size_t count, RedOp op) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t total = static_cast<const T*>(from[0])[i];
    for (std::size_t r = 1; r < from.size(); ++r)
      total = combine<std::int64_t>(op, total, static_cast<const T*>(from[r])[i]);
    static_cast<T*>(to)[i] = static_cast<T>(total);
  }
}

void reduce(const Communicator& c, const std::vector<const void*>& from, void* to, std::size_t count, int type,
            RedOp op) {
  double factor = 1;
  if (op >= 16) {
    factor = c.ops[static_cast<std::size_t>(op - 16)].factor;
    op = sum;
  }
  switch (type) {
    case 0:
      return reduce_integers<std::int8_t>(from, to, count, op);
    case 1:
      return reduce_integers<std::uint8_t>(from, to, count, op);
    case 2:
      return reduce_integers<std::int32_t>(from, to, count, op);
    case 4:
      return reduce_integers<std::int64_t>(from, to, count, op);
    case 6:
      return reduce_floats<hvd::cuda::f16>(from, to, count, op, factor);
    case 7:
      return reduce_floats<float>(from, to, count, op, factor);
    case 8:
      return reduce_floats<double>(from, to, count, op, factor);
    case 9:
      return reduce_floats<hvd::cuda::bf16>(from, to, count, op, factor);
    default:
      std::abort();
  }
}

// ---- a group, on its stream

struct Message {
  unsigned char* memory;
  std::size_t bytes, done = 0;
  std::uint32_t kind;
  bool begun = false;
};

struct Job {
  Communicator* comm;
  std::vector<Call> calls;
  std::map<int, std::vector<Message>> out, in;  ///< by peer, in order
  std::vector<std::function<void()>> after;     ///< when all messages have come
  std::vector<std::vector<unsigned char>> memory;

  unsigned char* temporary(std::size_t bytes) { return memory.emplace_back(bytes + 1).data(); }
  void send(int to, const void* from, std::size_t bytes, Kind kind) {
    out[to].push_back(
        {static_cast<unsigned char*>(const_cast<void*>(from)), bytes, 0, static_cast<std::uint32_t>(kind)});
  }
  void receive(int from, void* to, std::size_t bytes, Kind kind) {
    in[from].push_back({static_cast<unsigned char*>(to), bytes, 0, static_cast<std::uint32_t>(kind)});
  }

  void prepare(const Call& c) {
    const std::size_t bytes = c.count * bytes_of(c.type);
    const int me = comm->rank, n = comm->size;
    auto gathered = [&](const void* own, std::size_t length) {  // everybody's part, in rank order
      std::vector<const void*> from;
      for (int r = 0; r < n; ++r) {
        if (r == me) {
          from.push_back(own);
        } else {
          unsigned char* part = temporary(length);
          receive(r, part, length, c.kind);
          from.push_back(part);
        }
      }
      return from;
    };
    switch (c.kind) {
      case Kind::all_reduce: {
        for (int r = 0; r < n; ++r)
          if (r != me) send(r, c.in, bytes, c.kind);
        auto from = gathered(c.in, bytes);
        after.push_back([this, c, from] { ::reduce(*comm, from, c.out, c.count, c.type, c.op); });
        break;
      }
      case Kind::reduce:
        if (me != c.peer) {
          send(c.peer, c.in, bytes, c.kind);
        } else {
          auto from = gathered(c.in, bytes);
          after.push_back([this, c, from] { ::reduce(*comm, from, c.out, c.count, c.type, c.op); });
        }
        break;
      case Kind::reduce_scatter: {
        const auto* in = static_cast<const unsigned char*>(c.in);
        for (int r = 0; r < n; ++r)
          if (r != me) send(r, in + static_cast<std::size_t>(r) * bytes, bytes, c.kind);
        auto from = gathered(in + static_cast<std::size_t>(me) * bytes, bytes);
        after.push_back([this, c, from] { ::reduce(*comm, from, c.out, c.count, c.type, c.op); });
        break;
      }
      case Kind::broadcast:
        if (me == c.peer) {
          for (int r = 0; r < n; ++r)
            if (r != me) send(r, c.in, bytes, c.kind);
          after.push_back([c, bytes] {
            if (bytes) std::memmove(c.out, c.in, bytes);
          });
        } else {
          receive(c.peer, c.out, bytes, c.kind);
        }
        break;
      case Kind::all_gather: {
        auto* to = static_cast<unsigned char*>(c.out);
        for (int r = 0; r < n; ++r) {
          if (r == me) continue;
          send(r, c.in, bytes, c.kind);
          receive(r, to + static_cast<std::size_t>(r) * bytes, bytes, c.kind);
        }
        after.push_back([=] {
          if (bytes) std::memmove(to + static_cast<std::size_t>(me) * bytes, c.in, bytes);
        });
        break;
      }
      case Kind::send:
        send(c.peer, c.in, bytes, Kind::send);
        break;
      case Kind::receive:
        receive(c.peer, c.out, bytes, Kind::send);
        break;
    }
  }

  Mailbox& box(int from, int to) { return comm->segment->boxes[from * most_ranks + to]; }

  bool push(int to, Message& m) {
    Mailbox& b = box(comm->rank, to);
    if (b.full.load(std::memory_order_acquire)) return false;
    b.bytes = static_cast<std::uint32_t>(std::min(box_bytes, m.bytes - m.done));
    b.kind = m.kind;
    b.total = m.bytes;
    if (b.bytes) std::memcpy(b.data, m.memory + m.done, b.bytes);
    m.done += b.bytes;
    m.begun = true;
    b.full.store(1, std::memory_order_release);
    return true;
  }
  bool pull(int from, Message& m) {
    Mailbox& b = box(from, comm->rank);
    if (!b.full.load(std::memory_order_acquire)) return false;
    if (b.kind != m.kind || b.total != m.bytes) {
      std::fprintf(stderr, "fake NCCL: rank %d calls %u of %zu bytes, rank %d sent %u of %zu\n", comm->rank, m.kind,
                   m.bytes, from, b.kind, static_cast<std::size_t>(b.total));
      comm->error = invalid_usage;
      comm->aborted = true;
      return false;
    }
    if (b.bytes) std::memcpy(m.memory + m.done, b.data, b.bytes);
    m.done += b.bytes;
    m.begun = true;
    b.full.store(0, std::memory_order_release);
    return true;
  }

  /// The first message to or from each peer goes on.  False when all are through.
  bool carry(bool& moved) {
    bool left = false;
    auto go = [&](std::map<int, std::vector<Message>>& lists, auto&& step) {
      for (auto& [peer, list] : lists) {
        if (list.empty()) continue;
        left = true;
        if (!step(peer, list.front())) continue;
        moved = true;
        if (list.front().done == list.front().bytes) list.erase(list.begin());
      }
    };
    go(out, [this](int peer, Message& m) { return push(peer, m); });
    go(in, [this](int peer, Message& m) { return pull(peer, m); });
    return left;
  }

  void run() {
    for (const Call& c : calls) prepare(c);
    for (bool moved = true; !comm->aborted.load() && carry(moved); moved = false)
      if (!moved) {
        const timespec pause{0, 20000};
        nanosleep(&pause, nullptr);
      }
    if (!comm->aborted.load())
      for (auto& f : after) f();
    comm->jobs.fetch_sub(1);
  }
};

int submit() {
  std::map<std::pair<Communicator*, void*>, Job*> jobs;
  for (const Call& c : calls) {
    Job*& job = jobs[{c.comm, c.stream}];
    if (!job) job = new Job{.comm = c.comm};
    job->calls.push_back(c);
  }
  calls.clear();
  for (auto& [key, job] : jobs) {
    Communicator& c = *key.first;
    int after = 0, code = 0;
    const char* text = std::getenv("FAKE_NCCL_ASYNC");
    if (text && std::sscanf(text, "%d:%d", &after, &code) == 2 && ++c.groups >= after) c.error = code;
    c.looks = 2;
    c.jobs.fetch_add(1);
    const bool hangs = c.error.load() != success;
    auto* work = new std::function<void()>([job = job, hangs] {
      const timespec pause{0, 1000000};
      while (hangs && !job->comm->aborted.load()) nanosleep(&pause, nullptr);
      job->run();
      delete job;
    });
    fake_cuda_enqueue(
        key.second,
        [](void* context) {
          auto* f = static_cast<std::function<void()>*>(context);
          (*f)();
          delete f;
        },
        work);
  }
  return in_progress;
}

int add(const char* name, const Call& call) {
  if (const int code = failure(name)) return code;
  if (!call.comm || call.comm->aborted.load()) return invalid_usage;
  if (call.comm->looks.load() > 0) {
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
FAKE int ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (const int code = failure("ncclCommInitRankConfig")) return code;
  if (config->magic != 0xcafebeefu || config->blocking != 0 || ranks > most_ranks) return invalid_usage;
  const int fd = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Segment)) != 0) return 2;
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return 2;
  auto* c = new Communicator;
  c->segment = static_cast<Segment*>(memory);
  c->name = id.bytes;
  c->rank = rank;
  c->size = ranks;
  c->looks = 2;
  c->segment->joined.fetch_add(1);
  *comm = c;
  return in_progress;
}
FAKE int ncclCommAbort(Comm comm) {
  Communicator* c = comm_of(comm);
  c->aborted = true;
  while (c->jobs.load() > 0) sched_yield();
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
  } else if (c->looks.load() > 0) {
    c->looks.fetch_sub(1);
    *error = in_progress;
  }
  return 0;
}
#if !defined(FAKE_NCCL_INCOMPLETE)
FAKE int ncclRedOpCreatePreMulSum(RedOp* op, void* scalar, int type, int, Comm comm) {
  if (const int code = failure("ncclRedOpCreatePreMulSum")) return code;
  double factor = 0;
  float f = 0;
  hvd::cuda::f16 half;
  hvd::cuda::bf16 brain;
  switch (type) {
    case 6:
      std::memcpy(&half, scalar, sizeof half);
      factor = static_cast<double>(hvd::cuda::wide(half));
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
      factor = static_cast<double>(hvd::cuda::wide(brain));
      break;
    default:
      return invalid_usage;
  }
  Communicator* c = comm_of(comm);
  c->ops.push_back({type, factor});
  *op = 16 + static_cast<int>(c->ops.size()) - 1;
  return 0;
}
#endif
FAKE int ncclRedOpDestroy(RedOp, Comm) { return 0; }
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
