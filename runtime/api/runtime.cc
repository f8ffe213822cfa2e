#include "api/runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "api/mpi_plugin.h"
#include "base/error.h"
#include "transport/loopback.h"

namespace hvd::api {
namespace {

std::mutex mutex;  ///< of init and shutdown
/// Owned.  A pointer, so that nothing destroys it while the process exits with threads still inside.
std::atomic<core::Engine*> engine_now{nullptr};
std::atomic<bool> forked{false};
bool hooks_set = false, mpi_used = false;

/// In a child of fork() there is no engine thread, and the memory is still shared with our parent's peers: hands off.
void in_child() {
  forked.store(true);
  engine_now.store(nullptr);
}

void leave() {
  std::lock_guard lock(mutex);
  if (core::Engine* e = engine_now.exchange(nullptr)) delete e;
}

/// At exit.  MPI_Finalize waits for everybody; a rank that fails must not wait, or nobody would learn that it failed.
void at_exit(int status) {
  if (forked.load()) return;
  leave();
  if (mpi_used && status == 0) MpiPlugin::finalize();
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

std::unique_ptr<transport::Transport> open_transport(const hvd_init_options* options, const core::Config& config) {
  const bool some = options && options->ranks;
  if (some && options->num_ranks < 1) throw Error(Code::usage, "init", "the list of ranks is empty");
  if (MpiPlugin::launched()) {
    auto t = MpiPlugin::open(some ? options->ranks : nullptr, some ? options->num_ranks : 0, config.mpi_threads);
    mpi_used = true;
    return t;
  }
  if (some && (options->num_ranks != 1 || options->ranks[0] != 0))
    throw Error(Code::usage, "init", "this process was not started by a launcher: there is only rank 0",
                "start it with hvdrun or mpirun");
  return transport::LoopbackWorld::make(1)->open(0);
}

}  // namespace

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
  const core::Config config = core::Config::from_environment();
  auto transport = open_transport(options, config);
  set_hooks();  // after MPI has set its own, so that ours run first
  engine_now.store(new core::Engine(std::move(transport), config));
}

void shutdown() {
  if (!forked.load()) leave();
}

bool mpi_available() noexcept { return MpiPlugin::present(); }
core::Engine* current() noexcept { return engine_now.load(std::memory_order_acquire); }

}  // namespace hvd::api
