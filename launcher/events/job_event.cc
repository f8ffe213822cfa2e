#include "launcher/events/job_event.h"

#include <cstring>

#include "base/error.h"

namespace hvd::launcher {

namespace {

template <class Event>
void read_as(wire::Type type, int rank, const std::string& body, int num_ranks, std::optional<JobEvent>* found) {
  if constexpr (requires { Event::reader; }) {
    if (type != Event::type) return;
    try {
      *found = Event{rank, Event::reader(body, num_ranks)};
    } catch (const Error&) {
      if (!Event::is_from_user_code) throw;
    }
  }
}

template <class... Events>
std::optional<JobEvent> read_as_any(wire::Type type, int rank, const std::string& body, int num_ranks,
                                    const std::variant<Events...>* /*list*/) {
  std::optional<JobEvent> found;
  (read_as<Events>(type, rank, body, num_ranks, &found), ...);
  return found;
}

void need_size(const std::string& body, bool fits) {
  if (!fits) throw Error(Code::usage, "message", "has " + std::to_string(body.size()) + " bytes");
}

}  // namespace

RankOutput read_output(const std::string& body) {
  need_size(body, body.size() > 1);
  return {body[0] == 2 ? 2 : 1, std::string_view(body).substr(1)};
}

std::uint64_t read_taken(const std::string& body) {
  std::uint64_t bytes = 0;
  need_size(body, body.size() == sizeof bytes);
  std::memcpy(&bytes, body.data(), sizeof bytes);
  return bytes;
}

bool read_paused(const std::string& body) {
  need_size(body, body.size() == 1);
  return body[0] == 1;
}

std::optional<JobEvent> event_of(wire::Type type, int rank, const std::string& body, int num_ranks) {
  return read_as_any(type, rank, body, num_ranks, static_cast<const JobEvent*>(nullptr));
}

}  // namespace hvd::launcher
