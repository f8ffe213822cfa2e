#include "launcher/hosts/host_lookup.h"

#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr auto usual_time = std::chrono::milliseconds(10);  // most answers come sooner

ResolvedHost unknown(const std::string& name, const std::string& why) {
  return {name, false, {}, {}, name + ": " + why};
}

}  // namespace

void HostLookup::begin(const std::string& name, double now) {
  std::promise<ResolvedHost> promise;
  Asked& asked = asked_[name] = {promise.get_future(), now};
  std::thread([name, look_up = look_up_, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(look_up(name));
    } catch (const std::exception& e) { promise.set_value(unknown(name, e.what())); }
  }).detach();
  if (asked_.size() == 1) asked.answer.wait_for(usual_time);
}

HostLookup::Answer HostLookup::ask(const std::string& name, double now) {
  const auto is_there = [](const Asked& a) {
    return a.answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  auto at = asked_.find(name);
  if (at != asked_.end() && at->second.is_late && is_there(at->second)) at = (asked_.erase(at), asked_.end());
  if (at == asked_.end()) try {
      begin(name, now);
      at = asked_.find(name);
    } catch (const std::system_error& e) {
      asked_.erase(name);
      return {unknown(name, e.what())};
    }
  Asked& asked = at->second;
  if (std::exchange(asked.is_late, false)) asked.since = now;  // the thread waits still
  if (is_there(asked)) {
    Answer found{asked.answer.get()};
    asked_.erase(at);
    return found;
  }
  if (now - asked.since >= limit_seconds) {
    asked.is_late = true;
    return {unknown(name, "the name service does not answer")};
  }
  if (now - asked.since < silence_seconds || std::exchange(asked.is_told, true)) return {};
  return {std::nullopt, "waiting for the address of " + name};
}

}  // namespace hvd::launcher
