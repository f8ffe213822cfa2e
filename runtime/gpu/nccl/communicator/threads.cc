#include "gpu/nccl/communicator/threads.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "base/condition.h"
#include "base/error.h"

namespace hvd::nccl {
namespace {

/// The aborts of this process that have not returned.  Never destroyed.
struct RunningAborts {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
  std::chrono::seconds limit{20};  ///< of exit()
  pid_t process = 0;               ///< the process of the threads; a child of fork() has none of them
};

RunningAborts& running_aborts() {
  static RunningAborts* const aborts = new RunningAborts;
  return *aborts;
}

/// Handler for on_exit(3).
void wait_for_aborts(int status, void*) {
  RunningAborts& aborts = running_aborts();
  if (aborts.process != ::getpid()) return;
  std::unique_lock lock(aborts.mutex);
  if (aborts.changed.wait_for(lock, aborts.limit, [&] { return aborts.count == 0; })) return;
  std::fflush(nullptr);
  ::_exit(status);
}

void begin_abort() {
  RunningAborts& aborts = running_aborts();
  const std::lock_guard lock(aborts.mutex);
  // NCCL is loaded by now.  Exit handlers run in reverse order, so this handler runs before those of NCCL's libraries.
  static const int registered = ::on_exit(wait_for_aborts, nullptr);
  static_cast<void>(registered);
  if (std::exchange(aborts.process, ::getpid()) != ::getpid()) aborts.count = 0;
  ++aborts.count;
}

void end_abort() {
  RunningAborts& aborts = running_aborts();
  const std::lock_guard lock(aborts.mutex);
  --aborts.count;
  aborts.changed.notify_all();
}

}  // namespace

void expect_graphs() {
  RunningAborts& aborts = running_aborts();
  const std::lock_guard lock(aborts.mutex);
  aborts.limit = std::chrono::seconds(2);
}

LaunchThread::LaunchThread(cuda::Gpu& gpu, std::function<void()> wake) {
  state_->wake = std::move(wake);
  try {
    std::thread([state = state_, &gpu] { serve(*state, gpu); }).detach();
  } catch (const std::system_error& e) {
    throw Error(Code::unavailable, "NCCL", std::string("no thread: ") + e.what());
  }
}

LaunchThread::~LaunchThread() {
  {
    std::lock_guard lock(state_->wakes);
    state_->wake = nullptr;
  }
  std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->changed.notify_all();
}

void LaunchThread::run(std::function<void()> work) {
  std::lock_guard lock(state_->mutex);
  state_->work = std::move(work);
  state_->busy = true;
  state_->changed.notify_all();
}

bool LaunchThread::idle() const {
  std::lock_guard lock(state_->mutex);
  return !state_->busy;
}

bool LaunchThread::idle_by(std::chrono::steady_clock::time_point limit) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, limit, [this] { return !state_->busy; });
}

void LaunchThread::serve(State& state, cuda::Gpu& gpu) {
  pthread_setname_np(pthread_self(), "hvd-nccl");
  cuda::keep_context();
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  std::unique_lock lock(state.mutex);
  for (;;) {
    wait_for_truth(state.changed, lock, [&] { return state.work || state.over; });
    if (!state.work) return;
    std::function<void()> work = std::exchange(state.work, nullptr);
    lock.unlock();
    work();
    work = nullptr;  // destroys the objects of the work before idle() is true
    lock.lock();
    state.busy = static_cast<bool>(state.work);  // run() may have given the next work already
    state.changed.notify_all();
    lock.unlock();
    {
      std::lock_guard hold(state.wakes);
      if (state.wake) state.wake();
    }
    lock.lock();
  }
}

Comm CommunicatorSplit::end() {
  std::lock_guard lock(mutex);
  over = true;
  return wanted ? nullptr : made;
}

CommunicatorAbort::CommunicatorAbort(const Library& library, Comm comm, std::shared_ptr<CommunicatorSplit> splitting) {
  auto end = [&library, comm, splitting = std::move(splitting), state = state_] {
    library.abort(comm);
    if (splitting)
      if (const Comm unwanted = splitting->end()) library.abort(unwanted);
    end_abort();
    std::lock_guard lock(state->mutex);
    state->over = true;
    state->changed.notify_all();
  };
  begin_abort();
  try {
    std::thread(end).detach();
  } catch (const std::system_error&) {  // the system has no thread left: abort on this thread
    end();
  }
}

bool CommunicatorAbort::wait_until(std::chrono::steady_clock::time_point when) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, when, [this] { return state_->over; });
}

}  // namespace hvd::nccl
