#include "api/runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "api/between_hosts.h"
#include "api/mpi_plugin.h"
#include "api/revocation_watch.h"
#include "base/error.h"
#include "gpu/device.h"
#include "memory/result_memory.h"
#include "recorder/trace/file_sink.h"
#include "recorder/trace/link_sink.h"
#include "transport/loopback.h"
#include "wire/messages/link.h"

namespace hvd::api {
namespace {

std::mutex mutex;  ///< held by init, expect, shutdown and the timeline's functions
/// Owned.  A plain pointer without a destructor, because threads may still use the engine when the process exits.
std::atomic<core::Engine*> engine_now{nullptr};
std::atomic<int> inside{0};  ///< number of calls that use the engine now
std::atomic<bool> forked{false};
bool hooks_set = false, mpi_used = false;
RevocationWatch* watch = nullptr;  ///< owned; null: hvdrun cannot end the engine's world

/// In a child of fork(), forgets the engine without touching it.  The child has no engine thread.  The child shares the
/// engine's memory with the parent's peers.
void in_child() {
  forked.store(true);
  engine_now.store(nullptr);
}

/// Tells this rank's guard the rank's phase.  The status object is never destroyed.
void place(wire::RankPhase where) {
  static core::RankStatus* status = new core::RankStatus(static_cast<int>(options::integer_now("HVD_STATUS_FD")));
  status->place(where);
  if (!status->has_reader()) return;
  const int link = static_cast<int>(options::integer_now("HVD_LINK_FD"));  // shared memory wakes no reader
  if (link >= 0) wire::link::send(link, wire::Type::standing, nullptr, 0, false);
}

void leave() {
  std::lock_guard lock(mutex);
  core::Engine* e = engine_now.exchange(nullptr);
  if (!e) return;
  delete std::exchange(watch, nullptr);
  e->leave();  // waiting calls end now
  for (int ms = 0; inside.load() > 0; ++ms) {
    if (ms > 5000) return;  // a call does not return: leak the engine rather than crash
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  delete e;
  memory::ResultMemory::process().clear();
}

/// Called at exit.  MPI_Finalize waits for all ranks.  So a failed rank must not call it: no rank would learn of the
/// failure.
void at_exit(int status) {
  if (forked.load()) return;
  if (status != 0) {  // no orderly shutdown: after "has shut down" other ranks would fail first, and hide the cause
    if (core::Engine* e = engine_now.load()) e->tracer().stop();
    return;
  }
  place(wire::RankPhase::leaving);
  leave();
  if (mpi_used) MpiPlugin::finalize();
}

void set_hooks() {
  if (hooks_set) return;
  hooks_set = true;
  pthread_atfork(nullptr, nullptr, in_child);
#ifdef __GLIBC__
  on_exit([](int status, void*) { at_exit(status); }, nullptr);
#else
  std::atexit([] { at_exit(0); });
#endif
}

TransportPtr open_mpi(const std::vector<int>& ranks, const core::Config& config) {
  auto mpi = MpiPlugin::open(ranks.empty() ? nullptr : ranks.data(), static_cast<int>(ranks.size()),
                             !config.flag("HOROVOD_MPI_THREADS_DISABLE"));
  mpi_used = true;
  return mpi;
}

/// An opened world.  epoch: its number, counted from 0.
struct Opened {
  TransportPtr transport;
  std::int64_t epoch = 0;
  std::unique_ptr<RevocationWatch> watch{};  ///< null: hvdrun cannot end the world
};

Opened open_transport(const hvd_init_options* options, const core::Config& config) {
  const bool some = options && options->ranks;
  if (some && options->num_ranks < 1) throw Error(Code::usage, "init", "the list of ranks is empty");
  const std::vector<int> ranks =
      some ? std::vector<int>(options->ranks, options->ranks + options->num_ranks) : std::vector<int>{};
  const std::string introduction = core::Engine::introduction(config);
  if (auto meeting = RankMeeting::of(static_cast<int>(config.integer("HVD_MEETING_FD")))) {
    FoundWorld found = world_by_meeting(*meeting, ranks, introduction, config,
                                        [&](const std::vector<int>& all) { return open_mpi(all, config); });
    return {std::move(found.transport), static_cast<std::int64_t>(meeting->epoch()) - 1, std::move(found.watch)};
  }
  static std::int64_t worlds = 0;  // number of worlds; equal on all ranks, which make and leave worlds together
  if (MpiPlugin::launched()) return {between_hosts(open_mpi(ranks, config), introduction, config), worlds++};
  if (RankMeeting::is_hidden())
    throw Error(Code::usage, "init",
                "hvdrun has started this rank, but its variables are gone: the rank would train alone",
                "call init() before the environment is cleared");
  if (some && (ranks.size() != 1 || ranks[0] != 0))
    throw Error(Code::usage, "init", "this process was not started by a launcher: there is only rank 0",
                "start it with hvdrun or mpirun");
  return {transport::LoopbackWorld::make(1)->open(0), worlds++};
}

/// Starts the timeline.  Does nothing while it runs, since opening its file again would empty the file.
void start_trace(core::Engine& e, const trace::TraceSettings& settings, const std::string& path, bool mark_cycles) {
  if (e.tracer().enabled()) return;
  const World& w = e.world();
  const int link = static_cast<int>(options::integer_now("HVD_LINK_FD"));
  std::unique_ptr<trace::Sink> sink;
  if (settings.collected || path.empty()) {  // hvdrun writes the file, even if a timeline is requested only later
    if (link < 0) return;
    sink = std::make_unique<trace::LinkSink>(link);
  } else {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    sink = trace::make_file_sink({path, w.rank, w.size, host});
  }
  e.tracer().start(std::move(sink), mark_cycles);
}

/// Lets the timeline begin now, or with a later step, as the settings say.
void follow_steps(core::Engine& e, const trace::TraceSettings& settings) {
  const bool on = settings.start == trace::TraceSettings::Start::now;
  std::optional<trace::TraceSteps> steps;
  if (on && !settings.steps.empty()) {
    steps = trace::trace_steps(settings.steps);
    if (!steps)
      throw Error(Code::usage, "HVD_TIMELINE_STEPS", "\"" + settings.steps + "\" are no steps", "write 100-200, say");
  }
  e.follow_steps(steps, on, [&e, settings] { start_trace(e, settings, settings.path, settings.mark_cycles); });
}

/// Opens the world, which waits for the other ranks, and makes the engine.
std::unique_ptr<core::Engine> start(const hvd_init_options* options, const core::Config& config) {
  Opened opened = open_transport(options, config);
  set_hooks();  // after MPI has set its hooks, so that these run first
  const trace::TraceSettings settings = trace::settings_from_environment();
  auto fresh = std::make_unique<core::Engine>(std::move(opened.transport), config);
  fresh->begin_epoch(opened.epoch);
  follow_steps(*fresh, settings);
  if (opened.watch) opened.watch->tell(fresh.get());
  watch = opened.watch.release();
  return fresh;
}

}  // namespace

void start_timeline(const char* path, bool mark_cycles) {
  std::lock_guard lock(mutex);
  core::Engine* e = engine_now.load();
  if (!e) throw Error(Code::usage, "timeline", "the runtime is not initialised", "call init() first");
  const trace::TraceSettings settings = trace::settings_from_environment();
  if (!settings.collected && (!path || !*path)) throw Error(Code::usage, "timeline", "no file name was given");
  start_trace(*e, settings, path ? path : "", mark_cycles);
}

void stop_timeline() {
  std::lock_guard lock(mutex);
  if (core::Engine* e = engine_now.load()) e->stop_timeline();
}

void init(const hvd_init_options* options) {
  if (forked.load())
    throw Error(Code::usage, "init", "a child of fork() cannot use the runtime of its parent",
                "start processes with spawn");
  std::lock_guard lock(mutex);
  if (engine_now.load()) return;
  if (options && options->struct_size != sizeof(hvd_init_options))
    throw Error(Code::usage, "init",
                "struct_size is " + std::to_string(options->struct_size) + ", expected " +
                    std::to_string(sizeof(hvd_init_options)));
  const core::Config config = core::Config::of_environment(options::Component::libhvd);
  gpu::platform().allow_torch_memory(config.flag("HVD_TORCH_MEMORY"));
  place(wire::RankPhase::init);
  try {
    engine_now.store(start(options, config).release());
  } catch (...) {
    place(wire::RankPhase::script);
    throw;
  }
  place(wire::RankPhase::working);
}

World expect() {
  std::lock_guard lock(mutex);
  if (forked.load() || engine_now.load())
    throw Error(Code::usage, "expect", "this rank is in a world already, or in a child of fork()",
                "call it before init");
  const core::Config config = core::Config::of_environment(options::Component::libhvd);
  auto meeting = RankMeeting::of(static_cast<int>(config.integer("HVD_MEETING_FD")));
  if (!meeting) throw Error(Code::unavailable, "expect", "hvdrun has not started this process");
  const RankMeeting::Expected found = meeting->expect(config.number("HVD_INIT_TIMEOUT"));
  return World::of(found.rank, found.hosts, static_cast<int>(config.integer("HVD_RANKS_PER_NODE")));
}

void shutdown() {
  if (forked.load() || !initialized()) return;
  leave();
  place(wire::RankPhase::script);
}

bool mpi_available() noexcept { return MpiPlugin::present(); }
bool initialized() noexcept { return engine_now.load(std::memory_order_acquire) != nullptr; }

// Either leave() sees the count, or this call sees no engine: all these accesses are sequentially consistent.
Use::Use() : engine_((inside.fetch_add(1), engine_now.load())) {
  if (engine_) return;
  inside.fetch_sub(1);
  if (forked.load())
    throw Error(Code::usage, "", "this process is a child of fork(), which cannot use the runtime of its parent",
                "start processes with spawn");
  throw Error(Code::usage, "", "the runtime is not initialised", "call init() first");
}

Use::~Use() { inside.fetch_sub(1); }

}  // namespace hvd::api
