#include "sim_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>

#include "base/error.h"

namespace hvd::wire {

/// The network's state, shared by both ends of each pipe. Eventfds take the place of the descriptors that owners poll.
struct SimNet::State {
  struct Pipe {
    std::deque<Frame> up, down;  ///< up: to the listener
    bool open = true, reported = false;
    std::chrono::steady_clock::time_point cut_at;
  };
  std::size_t queue_frames;
  std::vector<Pipe> pipes;
};

namespace {

using State = SimNet::State;
using Clock = std::chrono::steady_clock;

class EventFd {
 public:
  EventFd() : fd_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  ~EventFd() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

class SimListener : public Listener {
 public:
  explicit SimListener(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::vector<std::string> addresses() const override { return {"sim://"}; }
  int fd() const override { return fd_.get(); }

  std::optional<PeerFrame> receive() override {
    for (std::size_t i = 0; i < state_->pipes.size(); ++i) {
      auto& up = state_->pipes[i].up;
      if (up.empty()) continue;
      PeerFrame r{std::to_string(i), std::move(up.front())};
      up.pop_front();
      return r;
    }
    return std::nullopt;
  }

  bool send(const PeerId& to, const Frame& frame) override {
    State::Pipe& pipe = state_->pipes.at(std::stoul(to));
    if (!pipe.open) throw Error(Code::peer_lost, "channel", "the guard is gone");
    if (pipe.down.size() >= state_->queue_frames) return false;
    pipe.down.push_back(frame);
    return true;
  }

  std::optional<PeerId> gone() override {
    for (std::size_t i = 0; i < state_->pipes.size(); ++i) {
      State::Pipe& pipe = state_->pipes[i];
      if (pipe.open || pipe.reported || !pipe.up.empty()) continue;
      pipe.reported = true;
      return std::to_string(i);
    }
    return std::nullopt;
  }

 private:
  std::shared_ptr<State> state_;
  EventFd fd_;
};

class SimConnection : public Connection {
 public:
  SimConnection(std::shared_ptr<State> state, std::size_t index) : state_(std::move(state)), index_(index) {}
  ~SimConnection() override { pipe().open = false; }
  int fd() const override { return fd_.get(); }

  std::optional<Frame> receive() override {
    if (pipe().down.empty()) return std::nullopt;
    Frame f = std::move(pipe().down.front());
    pipe().down.pop_front();
    return f;
  }

  bool send(const Frame& frame) override {
    if (!pipe().open || pipe().up.size() >= state_->queue_frames) return false;
    pipe().up.push_back(frame);
    return true;
  }

  bool connected() override { return true; }

  std::optional<std::chrono::milliseconds> lost_for() override {
    if (pipe().open) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - pipe().cut_at);
  }

 private:
  State::Pipe& pipe() { return state_->pipes[index_]; }
  std::shared_ptr<State> state_;
  std::size_t index_;
  EventFd fd_;
};

}  // namespace

SimNet::SimNet(std::size_t queue_frames) : state_(std::make_shared<State>()) { state_->queue_frames = queue_frames; }

std::unique_ptr<Listener> SimNet::listen() { return std::make_unique<SimListener>(state_); }

std::unique_ptr<Connection> SimNet::connect() {
  state_->pipes.emplace_back();
  return std::make_unique<SimConnection>(state_, state_->pipes.size() - 1);
}

void SimNet::cut(std::size_t nth, bool loses_frames) {
  State::Pipe& pipe = state_->pipes.at(nth);
  if (loses_frames) pipe.up.clear(), pipe.down.clear();
  pipe.open = false;
  pipe.cut_at = Clock::now();
}

}  // namespace hvd::wire
