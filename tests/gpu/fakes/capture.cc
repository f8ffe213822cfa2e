#include "capture.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace fake {

struct Capture {
  void* origin = nullptr;
  int mode = 0;
  std::thread::id thread;
  bool valid = true, ended = false;
  int nodes = 0;
  std::vector<std::function<void()>> work;
  std::set<void*> forked;  ///< streams that wait for one of its events, and for which the capture has not waited
};

namespace {

constexpr int global = 0, relaxed = 2;
constexpr int invalid_value = 1;

thread_local int mode = global;
std::mutex mutex;
struct All {
  std::vector<std::shared_ptr<Capture>> captures;  ///< under way
  std::set<void*> blocking;
};
All& all() {
  static auto* a = new All;  // threads may be at work when the process ends
  return *a;
}

/// The caller holds the lock, here and in the functions below.
std::shared_ptr<Capture> find(void* stream) {
  for (const auto& c : all().captures)
    if (c->origin == stream || c->forked.count(stream)) return c;
  return nullptr;
}

int fail(Capture& c, int code) {
  c.valid = false;
  return code;
}

bool blocked(void* stream) {
  return !stream && std::any_of(all().captures.begin(), all().captures.end(),
                                [](const auto& c) { return all().blocking.count(c->origin) > 0; });
}

}  // namespace

int unsafe() {
  if (mode == relaxed) return 0;
  std::lock_guard lock(mutex);
  int code = 0;
  for (const auto& c : all().captures) {
    const bool own = c->thread == std::this_thread::get_id() && c->mode != relaxed;
    const bool other = c->mode == global && mode == global;
    if (own || other) code = fail(*c, unsupported);
  }
  return code;
}

/// The result of a capture. A launch needs no instantiation.
struct Graph {
  int nodes;
  std::vector<std::function<void()>> work;
};

std::shared_ptr<Capture> capture_of(void* stream) {
  std::lock_guard lock(mutex);
  return find(stream);
}

int put(void* stream, bool* captured, const std::function<void()>& work) {
  std::lock_guard lock(mutex);
  if (blocked(stream)) return implicit;
  const auto c = find(stream);
  *captured = c != nullptr;
  if (!c) return 0;
  if (!c->valid) return invalidated;
  ++c->nodes;
  if (work) c->work.push_back(work);
  return 0;
}

int wait(void* stream, const std::shared_ptr<Capture>& capture, void* from, bool* captured) {
  std::lock_guard lock(mutex);
  if (blocked(stream)) return implicit;
  const auto c = find(stream);
  *captured = c || capture;
  if (!*captured) return 0;
  if (c && !c->valid) return invalidated;
  if (!capture) return fail(*c, isolation);
  if (capture->ended) return captured_event;
  if (c && c != capture) return fail(*capture, fail(*c, merge));
  if (!c)
    capture->forked.insert(stream);
  else if (from != capture->origin)
    capture->forked.erase(from);
  return 0;
}

int conflict(Capture& capture, int code) {
  std::lock_guard lock(mutex);
  return fail(capture, code);
}

void blocks(void* stream) {
  std::lock_guard lock(mutex);
  all().blocking.insert(stream);
}

}  // namespace fake

using namespace fake;

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int cuThreadExchangeStreamCaptureMode(int* wanted) {
  count("cuThreadExchangeStreamCaptureMode");
  if (*wanted < global || *wanted > relaxed) return invalid_value;
  std::swap(*wanted, fake::mode);
  return 0;
}
/// For the fake NCCL: a potentially unsafe call.
FAKE int fake_cuda_unsafe() { return unsafe(); }
FAKE int cuStreamIsCapturing(void* stream, int* status) {
  count("cuStreamIsCapturing");
  std::lock_guard lock(fake::mutex);
  if (blocked(stream)) return implicit;
  const auto c = find(stream);
  *status = !c ? 0 : c->valid ? 1 : 2;
  return 0;
}
FAKE int cuStreamBeginCapture_v2(void* stream, int capture_mode) {
  std::lock_guard lock(fake::mutex);
  if (!stream || find(stream) || capture_mode < global || capture_mode > relaxed) return invalid_value;
  auto c = std::make_shared<Capture>();
  c->origin = stream;
  c->mode = capture_mode;
  c->thread = std::this_thread::get_id();
  all().captures.push_back(std::move(c));
  return 0;
}
FAKE int cuStreamEndCapture(void* stream, void** graph) {
  std::lock_guard lock(fake::mutex);
  *graph = nullptr;
  const auto c = find(stream);
  if (!c || c->origin != stream) return unmatched;
  if (c->mode != relaxed && c->thread != std::this_thread::get_id()) return wrong_thread;
  c->ended = true;
  std::erase(all().captures, c);
  if (!c->valid) return invalidated;
  if (!c->forked.empty()) return unjoined;
  *graph = new Graph{c->nodes, std::move(c->work)};
  return 0;
}
FAKE int cuGraphLaunch(void* graph, void* stream) {
  for (const auto& work : static_cast<const Graph*>(graph)->work) enqueue(stream, work);
  return 0;
}
FAKE int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return 0;
}
/// For tests: the number of the graph's nodes.
FAKE int fake_cuda_graph_nodes(const void* graph) { return static_cast<const Graph*>(graph)->nodes; }
