#include "api/revocation_watch.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"

namespace hvd::api {

RevocationWatch::RevocationWatch(RankMeeting meeting, std::uint64_t epoch,
                                 std::shared_ptr<transport::Revocation> revocation)
    : meeting_(meeting), epoch_(epoch), revocation_(std::move(revocation)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw Error(Code::unavailable, "eventfd", errno_text(errno));
  sigset_t all, before;  // the thread blocks all signals: the script's threads handle them
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RevocationWatch::~RevocationWatch() {
  const std::uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {}
  thread_.join();
}

/// tell() and run() each write a word and then read the other's word (seq_cst). The later call sees both words, so at
/// least one of them revokes the engine.
void RevocationWatch::tell(core::Engine* engine) {
  engine_.store(engine);
  if (revocation_->raised()) engine->revoke(revocation_->why());
}

void RevocationWatch::run() {
  for (;;) {
    pollfd fds[] = {{meeting_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    try {
      const auto why = meeting_.revoked(epoch_);
      if (!why) continue;
      revocation_->raise(*why);
      if (core::Engine* engine = engine_.load()) engine->revoke(*why);
    } catch (const std::exception&) {}  // the host daemon is gone; the guard ends this rank
    return;
  }
}

}  // namespace hvd::api
