#include "rank/guard/rank_process.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/files/sha256.h"
#include "base/format.h"
#include "base/process/maker.h"
#include "base/process/process.h"
#include "base/text.h"
#include "rank/diagnostics/death/death_facts.h"
#include "rank/diagnostics/death/last_words.h"
#include "rank/launch/payload_store.h"
#include "rank/launch/start_archive.h"
#include "wire/messages/link.h"

namespace hvd::rank {
namespace {

constexpr std::chrono::seconds last_words_time(2);             // an earlier line does not explain the end
constexpr std::int64_t orphans_of_the_end_ns = 1'000'000'000;  // earlier deaths do not concern the rank's end
constexpr std::int64_t most_time_to_die_ns = 2'000'000'000;    // a longer time means that the log's clock differs

/// The resources used by a zombie and by the children that it has waited for.  Does not reap the zombie.  The system
/// call is used directly, because glibc's waitid() lacks this argument.
rusage usage_of(pid_t pid) {
  siginfo_t info{};
  rusage usage{};
  if (syscall(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT, &usage) != 0) return {};
  return usage;
}

/// The buffer for all reads from the rank.  It is not zeroed, so that the guard of a silent rank never touches its
/// pages.
std::span<char> read_buffer() {
  static const auto bytes = std::make_unique_for_overwrite<char[]>(wire::link::max_packet_bytes);
  return {bytes.get(), wire::link::max_packet_bytes};
}

/// The address space limit (RLIMIT_AS) of this process and its rank, in bytes; 0: no limit.
std::int64_t address_limit_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; }

}  // namespace

std::int64_t mono_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

RankProcess::RankProcess(const wire::RankManifest& m, const Environment& mine, int payload_fd, Fd meeting,
                         const std::string& secret)
    : rank_(m.rank), host_(m.host), memory_(memory_group(getpid())) {
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
  if (const std::string path = error_file_.path(); !path.empty()) p.launch.env.try_emplace(error_file_variable, path);
  cwd_ = p.launch.cwd;
  const auto temporary = p.launch.env.find("TMPDIR");
  temporary_folder_ = temporary == p.launch.env.end() ? "/tmp" : temporary->second;
  kept_out_ = p.kept_out;
  gpu_pci_ = binding.gpu_pci;
  gpu_planned_ = !binding.gpu.empty();
  phase_ = p.python.empty() ? "" : "python";
  const std::string& program = p.launch.program;
  is_python_ = !p.python.empty() || program.substr(program.rfind('/') + 1).starts_with("python");
  SpawnedProcess s = spawn(p.launch);
  pid_ = s.pid;
  gpu_ = std::make_unique<GpuWatch>(binding.gpu, pid_);
  out_fd_ = std::move(s.out);
  err_fd_ = std::move(s.err);
  input_ = StandardInput(std::move(s.in));
  started_ = {pid_, binding.cpus, binding.threads, binding.gpu, p.python, ""};
  if (s.bound_otherwise)
    started_.warning = "it could not be bound to the cores planned for it (" + ranges(binding.cpus) +
                       "): does a cgroup or --mpi-args keep it elsewhere?";
  if (s.used_fallback_cwd)
    started_.warning =
        formatted("the working folder {} is not on {}: running in {}", m.cwd, m.host, p.launch.fallback_cwd);
}

bool RankProcess::pump(Outbox& outbox, Clock::time_point now) {
  bool any = false;
  if (out_fd_ && !outbox.is_full()) any |= pump_stream(out_fd_, out_, 1, outbox, now);
  if (err_fd_ && !outbox.is_full()) any |= pump_stream(err_fd_, err_, 2, outbox, now);
  if (link_fd_ && !outbox.is_full()) any |= pump_link(outbox);
  return any;
}

bool RankProcess::pump_stream(Fd& fd, Output& output, char stream, Outbox& outbox, Clock::time_point now) {
  const std::span<char> buffer = read_buffer();
  const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    fd.reset();
    return true;
  }
  const bool had_traceback = output.holds_traceback();
  const std::string out = output.take({buffer.data(), static_cast<std::size_t>(n)}, now);
  // A killed worker of the rank is a zombie while the rank prints its traceback.  At its end, the rank reaps workers.
  if (output.holds_traceback() && !had_traceback) killed_.merge(killed_children(pid_));
  if (!out.empty()) outbox.add(wire::Type::output, stream + out);
  return true;
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
      phase_ = std::string(body.substr(0, 40));
      [[fallthrough]];
    case wire::Type::trace:
    case wire::Type::result:
    case wire::Type::stall:
      outbox.add(type, std::string(body));
      break;
    case wire::Type::standing:
      has_libhvd_ = true;
      break;
    case wire::Type::failure:
      failure_ = wire::failure_from(body);
      if (failure_->code == 0) failure_.reset();
      break;
    case wire::Type::unstarted:
      try {
        unstarted_ = wire::start_failure_from_json(std::string(body));
      } catch (const Error&) {}
      break;
    default:
      break;
  }
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
  operations.collectives = collectives_.last();
  outbox.add(wire::Type::operations, to_json(operations));
}

void RankProcess::expire(Outbox& outbox, Clock::time_point now) {
  const std::string out = err_.expire(now);
  if (!out.empty()) outbox.add(wire::Type::output, '\2' + out);
}

void RankProcess::step_stack(Outbox& outbox) {
  if (auto picture = stack_.step()) outbox.add(wire::Type::stack, std::move(*picture));
}

void RankProcess::keep_killed_orphan(pid_t pid, int signal) {
  const std::int64_t now = mono_ns();
  std::erase_if(orphans_, [now](const auto& one) { return now - one.second.seen_ns > orphans_of_the_end_ns; });
  orphans_[pid] = {now, {process_name(pid), signal}};
}

/// When a rank ends, this process adopts the rank's zombies.  This process may reap them before it sees the rank's end.
void RankProcess::add_killed_orphans() {
  killed_.merge(killed_children(getpid()));
  for (const auto& [pid, orphan] : orphans_)
    if (ended_ns_ - orphan.seen_ns < orphans_of_the_end_ns) killed_.emplace(pid, orphan.child);
  orphans_.clear();
}

bool RankProcess::reap() {
  if (has_ended()) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
    return false;
  }
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    if (info.si_pid == pid_) {
      ended_ns_ = mono_ns();
      const rusage usage = usage_of(pid_);
      peak_bytes_ = std::int64_t{usage.ru_maxrss} << 10;
      cpu_seconds_ = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    }
    // /proc shows the cgroup and the size of a zombie.  Read them before the zombie is reaped.
    if (info.si_pid == pid_)
      add_killed_orphans();
    else if ((info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) && is_trouble(info.si_status))
      keep_killed_orphan(info.si_pid, info.si_status);
    if (info.si_pid == pid_ && info.si_code == CLD_KILLED && info.si_status == SIGKILL)
      oom_ = oom_verdict(pid_, memory_, peak_bytes_);
    // A large process needs time to die.  Small processes that are killed later may end earlier.  So the rank's end is
    // the time of its kill.
    if (info.si_pid == pid_ && oom_.at_us >= 0 && ended_ns_ - oom_.at_us * 1000 < most_time_to_die_ns)
      ended_ns_ = std::min(ended_ns_, oom_.at_us * 1000);
    int status = 0;
    const pid_t reaped = waitpid(info.si_pid, &status, 0);
    if (reaped == pid_) {
      status_ = status;
      return true;
    }
    info = {};
  }
  return false;
}

std::optional<bool> RankProcess::paused() const {
  std::optional<bool> now;
  siginfo_t info{};
  while (!has_ended() && waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    now = info.si_code == CLD_STOPPED;
    info = {};
  }
  return now;
}

bool RankProcess::alone() const {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

void RankProcess::signal(int number) const {
  if (!has_ended()) kill(-pid_, number);
}

void RankProcess::suspend() const {
  if (!has_ended()) signal(catches_signal(pid_, SIGTSTP) ? SIGTSTP : SIGSTOP);
}

void RankProcess::wake() const {
  if (has_ended()) return;
  if (process_state(pid_) == 'T' || !catches_signal(pid_, SIGCONT)) signal(SIGCONT);
}

void RankProcess::judge(wire::DeathRecord* r, bool stopped) const {
  using wire::Cause;
  const int status = *status_;
  r->core_dumped = WIFSIGNALED(status) && WCOREDUMP(status);
  const int as_shell = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (as_shell == 0) return;
  if (unstarted_) {
    r->cause = Cause::unstarted;
    r->code = unstarted_->code;
    r->text = unstarted_->text;
    r->hint = unstarted_->hint;
  } else if (!oom_.text.empty() && (!stopped || oom_.at_us >= 0)) {
    r->cause = Cause::oom;
    r->code = SIGKILL;
    r->text = oom_.text;
    r->hint = "use a smaller batch, fewer ranks on this host (-H host:n), or a host with more memory";
  } else if (stopped) {
    r->cause = Cause::stopped;
    r->code = as_shell;
  } else {
    r->cause = WIFEXITED(status) ? Cause::exited : Cause::signalled;
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    add_system_facts(r);
  }
}

/// Adds facts about the host: a full /dev/shm, and the place of a core file.
void RankProcess::add_system_facts(wire::DeathRecord* r) const {
  if (r->cause == wire::Cause::signalled && r->code == SIGBUS) {
    r->text = full_shared_memory();
    if (!r->text.empty()) {
      r->fact = wire::DeathFact::shared_memory_full;
      r->hint = "give it more: mount -o remount,size=8G /dev/shm, or docker run --shm-size=8g";
    }
  }
  if (r->core_dumped) r->hint = core_place(core_pattern(), cwd_);
}

/// Adds facts from the rank's last words.
void RankProcess::add_last_words(wire::DeathRecord* r) const {
  if (r->cause == wire::Cause::signalled) {
    // stack_ may contain the crash of a worker.  So stack_ is read only if the rank itself has crashed.
    const bool crashed =
        r->code == SIGSEGV || r->code == SIGABRT || r->code == SIGBUS || r->code == SIGFPE || r->code == SIGILL;
    const std::string limit = reached_limit(*r);
    if (!limit.empty()) r->fact = wire::DeathFact::limit;
    if (crashed) r->frame = stack_.fatal_frame();
    std::vector<std::string> parts = {r->text, crashed ? stack_.fatal() : "", thrown_exception(r->tail), limit};
    std::erase(parts, "");
    r->text = join(parts, "; ");
  } else if (r->cause == wire::Cause::exited) {
    r->text = killed_text(killed_);
    const bool by_words = is_python_ && (r->code == 1 || r->code == 2) && r->traceback.empty();
    if (r->text.empty() && by_words) r->text = err_.last_line(Clock::now() - last_words_time);
    const std::string& words = r->traceback.empty() ? join(r->tail, "\n") : r->traceback;
    if (!r->text.empty() && tells_dead_worker(words)) r->fact = wire::DeathFact::worker_killed;
    if (!r->hint.empty()) return;
    if (tells_full_disk(words)) r->hint = full_folders(cwd_, temporary_folder_);
    if (!r->hint.empty()) r->fact = wire::DeathFact::disk_full;
    if (r->hint.empty()) r->hint = mpirun_in_a_rank(join(r->tail, "\n"));
    if (r->hint.empty()) r->hint = killed_workers(memory_);
    if (r->hint.empty()) r->hint = hint_for(words, address_limit_bytes());
  }
}

/// Adds facts about the GPU.  The rank's last words must be known.
void RankProcess::add_gpu_facts(wire::DeathRecord* r) const {
  if (r->cause != wire::Cause::exited && r->cause != wire::Cause::signalled) return;
  const GpuFacts facts = gpu_->facts();
  const std::string xid = xid_of(gpu_pci_, started_us_);  // the log's text says more than NVML's number
  GpuVerdict errors = gpu_errors(facts);
  if (!xid.empty())
    errors = {"the GPU's driver reports " + xid, "NVIDIA lists what each Xid means and whether the GPU needs a reset",
              errors.fact == wire::DeathFact::none ? wire::DeathFact::gpu_error : errors.fact};
  const std::string& words = r->traceback.empty() ? join(r->tail, "\n") : r->traceback;
  for (const GpuVerdict& v : {errors, gpu_planned_ ? out_of_gpu_memory(words, facts) : GpuVerdict{}}) {
    if (v.text.empty()) continue;
    r->text += (r->text.empty() ? "" : "; ") + v.text;
    if (r->hint.empty()) r->hint = v.hint;
    r->fact = v.fact;
  }
}

wire::DeathRecord RankProcess::record(Outbox& outbox, bool stopped) {
  wire::DeathRecord r;
  r.rank = rank_;
  r.host = host_;
  r.pid = pid_;
  r.time_ns = ended_ns_;
  r.phase = phase_;
  r.failure = failure_;
  r.cpu_seconds = cpu_seconds_;
  r.peak_bytes = peak_bytes_;
  status_page_.fill(&r);
  gpu_->fill(&r);
  judge(&r, stopped);
  std::string rest;
  const std::string held = err_.finish(&rest);
  const bool killed = r.cause == wire::Cause::signalled || r.cause == wire::Cause::oom;
  if (r.cause == wire::Cause::finished || r.cause == wire::Cause::unstarted || killed) {
    rest += held;  // the rank handled that exception: an unhandled one ends Python with an exit code
  } else {
    // A traceback that was shown earlier is the cause of the end only if Python ended by an exception.
    const bool by_exception = WIFEXITED(*status_) && WEXITSTATUS(*status_) == 1;
    r.traceback_shown = held.empty() && by_exception && !err_.shown_traceback().empty();
    r.traceback = r.traceback_shown ? err_.shown_traceback() : held;
    if (r.traceback.empty() && r.cause == wire::Cause::exited) r.traceback = error_file_.read();
  }
  if (!rest.empty()) outbox.add(wire::Type::output, '\2' + rest);
  r.tail = tail_.lines();
  add_last_words(&r);
  add_gpu_facts(&r);
  const std::string& words = r.traceback.empty() ? join(r.tail, "\n") : r.traceback;
  if (r.hint.empty() && words.find("No module named") != std::string::npos) r.hint = kept_out_;
  return r;
}

}  // namespace hvd::rank
