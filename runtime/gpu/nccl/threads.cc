#include "gpu/nccl/threads.h"

#include <system_error>
#include <utility>

#include "base/condition.h"

namespace hvd::nccl {

CallThread::CallThread() : thread_([this] { serve(); }) {}

CallThread::~CallThread() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  thread_.join();  // between two calls it does nothing
}

void CallThread::run(const std::function<void()>& call) {
  std::unique_lock lock(mutex_);
  call_ = &call;
  changed_.notify_all();
  wait_for_truth(changed_, lock, [this] { return !call_; });
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void CallThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_for_truth(changed_, lock, [this] { return call_ || over_; });
    if (!call_) return;
    try {
      (*call_)();
    } catch (...) { thrown_ = std::current_exception(); }
    call_ = nullptr;
    changed_.notify_all();
  }
}

Comm CommunicatorSplit::end() {
  std::lock_guard lock(mutex);
  over = true;
  return wanted ? nullptr : made;
}

CommunicatorAbort::CommunicatorAbort(const Library& library, Comm comm, std::shared_ptr<CommunicatorSplit> splitting,
                                     std::shared_ptr<CallThread> caller) {
  auto end = [&library, comm, splitting = std::move(splitting), caller = std::move(caller), state = state_] {
    library.abort(comm);
    if (splitting)
      if (const Comm unwanted = splitting->end()) library.abort(unwanted);
    std::lock_guard lock(state->mutex);
    state->over = true;
    state->changed.notify_all();
  };
  try {
    std::thread(end).detach();
  } catch (const std::system_error&) {  // no thread to be had
    end();
  }
}

bool CommunicatorAbort::wait_until(std::chrono::steady_clock::time_point when) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, when, [this] { return state_->over; });
}

}  // namespace hvd::nccl
