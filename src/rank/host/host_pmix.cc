#include "rank/host/host_pmix.h"

#include <cstring>

#include "base/error.h"
#include "base/load.h"
#include "wire/messages/pmix_message.h"

namespace hvd::rank {

using wire::PmixMessage;
using wire::Type;

namespace {

constexpr double longest_start_ms = 20'000;  ///< multiplied by the load; a start takes 5 ms on an idle machine

}  // namespace

void HostPmix::start(const PmixStart& start) {
  try {
    process_ = std::make_unique<PmixProcess>(start);
  } catch (const Error& e) { problem_ = e.what(); }
}

void HostPmix::take_end(pid_t pid, int status) {
  if (process_ && process_->pid() == pid) process_->set_ended(status);
}

void HostPmix::begin(const std::string& daemon_manifest, Time now) {
  process_->send(Type::daemon_manifest, daemon_manifest);
  due_ = now + std::chrono::milliseconds(static_cast<int>(longest_start_ms * load_factor()));
}

void HostPmix::send(std::string message) {
  if (process_) process_->send(Type::pmix, std::move(message));
}

void HostPmix::add_to(std::vector<pollfd>& fds) const {
  if (process_) fds.push_back({process_->fd(), POLLIN, 0});
}

std::optional<HostPmix::News> HostPmix::next(Time now) {
  if (!process_) return std::nullopt;
  while (const auto frame = process_->receive())
    if (auto event = event_of(*frame)) return event;
  const auto end = process_->end();
  if (!end && !(due_ && now > *due_)) return std::nullopt;
  lose(end ? "its server " + *end : "its server does not answer");
  return News{.kind = News::Kind::lost};
}

std::vector<HostPmix::News> HostPmix::last_words() {
  std::vector<News> events;
  if (process_)
    for (const wire::Frame& frame : process_->last_words())
      if (auto event = event_of(frame)) events.push_back(std::move(*event));
  return events;
}

std::optional<HostPmix::News> HostPmix::event_of(const wire::Frame& frame) {
  const auto type = static_cast<Type>(frame.type);
  std::int32_t rank = -1;
  if (type == Type::pmix_environment && frame.body.size() >= sizeof rank) {
    std::memcpy(&rank, frame.body.data(), sizeof rank);
    return News{.kind = News::Kind::environment, .rank = rank, .text = frame.body.substr(sizeof rank)};
  }
  if (type != Type::pmix) return std::nullopt;
  const PmixMessage message = wire::decode_pmix_message(frame.body);
  if (message.kind != PmixMessage::Kind::broken) return News{.kind = News::Kind::message, .frame = frame};
  problem_ = message.data;
  return std::nullopt;
}

void HostPmix::lose(const std::string& how) {
  if (problem_.empty()) problem_ = "libpmix: " + how;
  process_.reset();
  due_.reset();
}

}  // namespace hvd::rank
