#include "rank/guard/rank_process.h"

#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/files/sha256.h"
#include "base/format.h"
#include "base/process/maker.h"
#include "base/text.h"
#include "rank/launch/payload_store.h"
#include "rank/launch/start_archive.h"
#include "wire/messages/link.h"

namespace hvd::rank {
namespace {

/// For wire::RankOperations::gpu.
std::string gpu_text(const wire::StatusReport& s) {
  if (s.gpu == wire::GpuProgress::none) return {};
  const std::string time = formatted("{:.1f} s", s.waited_seconds);
  return s.gpu == wire::GpuProgress::computing
             ? formatted("still computes {}, without progress for {}", s.gpu_late, time)
             : formatted("exchanges {}, without progress for {}", s.waits_for, time);
}

}  // namespace

RankProcess::RankProcess(const wire::RankManifest& m, const Environment& mine, int payload_fd, Fd meeting,
                         const std::string& secret) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  link_fd_ = Fd(pair[0]);
  const Fd theirs(pair[1]);
  const Binding binding = plan_binding(m, mine);
  // The ranks' key differs from the guards' key: a rank that leaks its key does not leak hvdrun's.
  const bool many_hosts = m.local_size < m.size;
  const Fd key = many_hosts ? text_in_memory("hvd-key", sha256_hex("hvd: ranks of the job\n" + secret)) : Fd();
  LaunchPlan p =
      plan_launch(m, mine, binding,
                  {theirs.get(), payload_fd, stack_.fd(), status_page_.fd(), recorder_.fd(), key.get(), meeting.get()});
  const Fd archive = add_start_archive(p.launch, collectives_.name());
  evidence_.begin(m, binding, p);
  SpawnedProcess s = spawn(p.launch);
  child_.began(s.pid);
  evidence_.watch_gpu(binding, s.pid);
  streams_.open(std::move(s.out), std::move(s.err));
  input_ = StandardInput(std::move(s.in));
  started_ = {s.pid, binding.cpus, binding.threads, binding.gpu, p.python, ""};
  if (s.prefers_node) started_.memory_node = binding.memory_node;
  if (s.bound_otherwise)
    started_.warning = "it could not be bound to the cores planned for it (" + ranges(binding.cpus) +
                       "): does a cgroup or --mpi-args keep it elsewhere?";
  if (s.used_fallback_cwd)
    started_.warning =
        formatted("the working folder {} is not on {}: running in {}", m.cwd, m.host, p.launch.fallback_cwd);
}

void RankProcess::add_fds(std::vector<pollfd>& fds) const {
  streams_.add_fds(fds);
  if (link_fd_) fds.push_back({link_fd_.get(), POLLIN, 0});
}

bool RankProcess::pump(Outbox& outbox, Clock::time_point now) {
  bool any = streams_.pump(outbox, now);
  if (streams_.has_new_traceback()) child_.note_killed_children();
  if (link_fd_ && !outbox.is_full()) any |= pump_link(outbox);
  return any;
}

bool RankProcess::pump_link(Outbox& outbox) {
  const std::span<char> packet = read_buffer();
  const ssize_t n = recv(link_fd_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    link_fd_.reset();
    return true;
  }
  std::size_t at = 0;
  for (wire::link::View v{}; wire::link::next(packet.data(), static_cast<std::size_t>(n), &at, &v);)
    take(v.type, {v.body, v.bytes}, outbox);
  return true;
}

/// Passes on the message types that a rank may send, and drops all others: the rank's process can send anything.
void RankProcess::take(wire::Type type, std::string_view body, Outbox& outbox) {
  switch (type) {
    case wire::Type::phase:
      evidence_.set_phase(std::string(body.substr(0, 40)));
      [[fallthrough]];
    case wire::Type::trace:
    case wire::Type::result:
    case wire::Type::stall:
    case wire::Type::finding:
      outbox.add(type, std::string(body));
      break;
    case wire::Type::standing:
      has_libhvd_ = true;
      break;
    case wire::Type::failure:
      evidence_.set_failure(wire::failure_from(body));
      break;
    case wire::Type::mismatched_call:
      try {
        if (auto found = wire::mismatched_call_from_stack(std::string(body)))
          evidence_.set_mismatched_call(std::move(*found));
      } catch (const Error&) {}
      break;
    case wire::Type::unstarted:
      try {
        evidence_.set_unstarted(wire::start_failure_from_json(std::string(body)));
      } catch (const Error&) {}
      break;
    default:
      break;
  }
}

std::optional<wire::StatusReport> RankProcess::standing(Clock::time_point now) {
  if (idle_.is_due(now)) {
    RankUse use = use_below(child_.pid());
    use.printed = streams_.written();
    use.gpu_computes = evidence_.gpu_is_busy();
    idle_.take(use, now);
  }
  wire::StatusReport report = status_page_.standing(mono_ns());
  report.idle_seconds = idle_.seconds();
  return news_.next(std::move(report));
}

void RankProcess::send_steps(Outbox& outbox) {
  if (recorder_.wants_report()) outbox.add(wire::Type::want_report, "");
  for (int block = 0; block < 8 && !outbox.is_full();
       ++block) {  // at most one full ring, because the rank may write more meanwhile
    const std::vector<wire::StepRecord> steps = recorder_.next_steps();
    if (steps.empty()) return;
    outbox.add(wire::Type::steps, encode(steps));
  }
}

void RankProcess::ask_operations(std::size_t most, Clock::time_point now) {
  collectives_.ask_all(now);
  operations_asked_ = most;
}

void RankProcess::step_collectives(Outbox& outbox, Clock::time_point now) {
  collectives_.step(outbox, now);
  if (!operations_asked_ || !collectives_.answered(now)) return;
  send_operations(outbox, *operations_asked_);
  operations_asked_.reset();
}

void RankProcess::send_operations(Outbox& outbox, std::size_t most) const {
  wire::RankOperations operations = recorder_.last_operations(most, mono_ns());  // at most a megabyte
  operations.gpu = gpu_text(status_page_.standing(mono_ns()));
  operations.collectives = collectives_.last();
  outbox.add(wire::Type::operations, to_json(operations));
}

void RankProcess::step_stack(Outbox& outbox) {
  if (auto picture = stack_.step()) outbox.add(wire::Type::stack, std::move(*picture));
}

wire::DeathRecord RankProcess::record(Outbox& outbox, bool stopped) {
  wire::DeathRecord r;
  status_page_.fill(&r);
  r.frame = stack_.fatal_frame();
  return evidence_.record(std::move(r), child_, streams_, stack_.fatal(), stopped, outbox);
}

}  // namespace hvd::rank
