#include "rank/guard/collective_probe.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/random.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

using namespace std::chrono_literals;

constexpr auto probe_every = 1s;
constexpr auto still_enough = 2s;       // an idle rank is asked after this time
constexpr auto ask_busy_every = 3s;     // period for a rank that runs
constexpr auto ask_waiting_every = 2s;  // period for a rank that waits, until old_wait
constexpr auto old_wait = 30s;
constexpr auto ask_old_every = 10s;
constexpr auto all_limit = 1200ms;  // hvdrun waits 3 s
constexpr double worth_telling_seconds = 2;
constexpr std::size_t most_answer_bytes = 256u << 10;

double seconds_of(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// A text that changes whenever the main thread has run: its processor time, and the number of its sleeps.
std::string main_thread_activity(pid_t pid) {
  const std::string task = formatted("/proc/{}/task/{}/", pid, pid);
  std::string out;
  for (const std::string& line : split(whole_text(task + "status"), '\n'))
    if (line.starts_with("voluntary_ctxt_switches")) out += line;
  const std::string stat = whole_text(task + "stat");
  const std::vector<std::string> fields = words(stat.substr(std::min(stat.rfind(')'), stat.size())));
  if (fields.size() > 13) out += " " + fields[12] + " " + fields[13];
  return out;
}

/// True if a collective or a message is under way.
bool has_open(const wire::RankCollectives& told) {
  return std::any_of(told.last.begin(), told.last.end(), [](const auto& record) { return !record.ended; });
}

/// The wait of a rank that has sent @p told.
wire::CollectiveWait wait_of(const wire::RankCollectives& told, double still_seconds) {
  wire::CollectiveWait wait;
  wait.init = told.init;
  for (const wire::CollectiveRecord& r : told.last)
    if (!r.ended && !r.point_to_point && r.seconds >= wait.seconds) wait.what = r.kind, wait.seconds = r.seconds;
  if (wait.what.empty() && told.call)
    wait.what = told.call->name, wait.seconds = std::max(told.call->seconds, still_seconds);
  if (wait.seconds < worth_telling_seconds) wait.what.clear(), wait.seconds = 0;
  return wait;
}

}  // namespace

CollectiveProbe::CollectiveProbe() {
  const std::string name = formatted("hvdrun-watch-{}-{}", getpid(), random_letters(12));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener.get(), 4) != 0)
    return;
  listener_ = std::move(listener);
  name_ = name;
}

void CollectiveProbe::add_fds(std::vector<pollfd>& fds) const {
  if (listener_) fds.push_back({listener_.get(), POLLIN, 0});
  if (link_) fds.push_back({link_.get(), POLLIN, 0});
}

CollectiveProbe::Clock::time_point CollectiveProbe::deadline() const {
  if (!link_) return Clock::time_point::max();
  return all_asked_ ? std::min(look_at_, all_limit_) : look_at_;
}

void CollectiveProbe::step(Outbox& outbox, Clock::time_point now) {
  accept_rank();
  if (!link_) return;
  read_answers(outbox, now);
  if (link_ && now >= look_at_) look(now);
}

/// A process connects when it uses torch's process groups.  The newest connection counts, because a launcher between
/// the guard and the rank may have used them earlier.
void CollectiveProbe::accept_rank() {
  while (listener_) {
    Fd link(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!link) return;
    const auto peer = peer_of(link.get());
    if (!peer || !is_of_this_user(link.get())) continue;
    link_ = std::move(link);
    pid_ = peer->pid;
    told_.reset();
    open_question_ = asked_since_still_ = false;
    still_since_ = asked_at_ = Clock::now();
  }
}

void CollectiveProbe::read_answers(Outbox& outbox, Clock::time_point now) {
  std::string text;
  for (;;) {
    text.resize(most_answer_bytes);
    const ssize_t n = ::recv(link_.get(), text.data(), text.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      link_.reset();
      return;
    }
    text.resize(static_cast<std::size_t>(n));
    take(text, outbox, now);
  }
}

void CollectiveProbe::take(const std::string& text, Outbox& outbox, Clock::time_point now) {
  open_question_ = false;
  try {
    told_ = {wire::rank_collectives_from_json(text), now};
  } catch (const Error&) { return; }
  if (told_->collectives.whole) all_asked_ = false;
  const wire::CollectiveWait wait = wait_of(told_->collectives, seconds_of(now - still_since_));
  const bool news = wait.what != said_.what || wait.init.has_value() != said_.init.has_value() ||
                    (wait.init && wait.init->refused != said_.init->refused) || wait.seconds + 0.5 < said_.seconds;
  if (!news && (wait.what.empty() || now - said_at_ < ask_waiting_every)) return;
  said_ = wait;
  said_at_ = now;
  outbox.add(wire::Type::collective_wait, to_json(wait));
}

void CollectiveProbe::look(Clock::time_point now) {
  look_at_ = now + probe_every;
  std::string activity = main_thread_activity(pid_);
  const bool still = activity == activity_;
  if (!still) {
    activity_ = std::move(activity);
    still_since_ = now;
    asked_since_still_ = false;
  }
  if (open_question_) return;  // the interpreter is blocked, and answers later
  const bool waits = !said_.what.empty() || said_.init;
  const auto since_asked = now - asked_at_;
  const bool is_old = now - still_since_ > old_wait;
  // A collective that is under way may become a long wait.
  const bool is_idle = still && !(asked_since_still_ && told_ && has_open(told_->collectives));
  const bool due = waits     ? since_asked >= (is_old ? ask_old_every : ask_waiting_every)
                   : is_idle ? !asked_since_still_ && now - still_since_ >= still_enough
                             : since_asked >= ask_busy_every;
  if (!due) return;
  asked_at_ = now;
  // A question from before still_enough does not count, because its answer cannot show a long wait.
  asked_since_still_ = now - still_since_ >= still_enough;
  ask('w');
}

void CollectiveProbe::ask(char question) {
  if (::send(link_.get(), &question, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) open_question_ = true;
}

void CollectiveProbe::ask_all(Clock::time_point now) {
  if (!link_) return;
  all_asked_ = true;
  all_limit_ = now + all_limit;
  ask('a');
}

std::optional<wire::RankCollectives> CollectiveProbe::last() const {
  if (!told_) return {};
  const auto& [answer, at] = *told_;
  if (!all_asked_ || at > still_since_) return answer;
  wire::RankCollectives known;
  known.rank = answer.rank;
  known.pid = answer.pid;
  known.groups = answer.groups;
  return known;
}

}  // namespace hvd::rank
