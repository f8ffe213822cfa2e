#include "rank/guard/death_evidence.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>

#include "base/text.h"
#include "rank/diagnostics/death/death_facts.h"
#include "rank/diagnostics/death/gpu_death.h"
#include "rank/diagnostics/death/last_words.h"

namespace hvd::rank {
namespace {

constexpr std::chrono::seconds last_words_time(2);  // an earlier line does not explain the end

/// The address space limit (RLIMIT_AS) of this process and its rank, in bytes; 0: no limit.
std::int64_t address_limit_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

/// The rank's traceback, else the end of its output.
std::string words_of(const wire::DeathRecord& r) { return r.traceback.empty() ? join(r.tail, "\n") : r.traceback; }

}  // namespace

void DeathEvidence::begin(const wire::RankManifest& m, const Binding& binding, LaunchPlan& plan) {
  auto& env = plan.launch.env;
  if (const std::string path = error_file_.path(); !path.empty()) env.try_emplace(error_file_variable, path);
  const auto temporary = env.find("TMPDIR");
  const std::string& program = plan.launch.program;
  start_ = {.rank = m.rank,
            .host = m.host,
            .cwd = plan.launch.cwd,
            .temporary_folder = temporary == env.end() ? "/tmp" : temporary->second,
            .gpu_pci = binding.gpu_pci,
            .kept_out = plan.kept_out,
            .gpu_planned = !binding.gpu.empty(),
            .is_python = !plan.python.empty() || program.substr(program.rfind('/') + 1).starts_with("python")};
  phase_ = plan.python.empty() ? "" : "python";
}

void DeathEvidence::set_failure(wire::Failure failure) {
  failure_.reset();
  if (failure.code != 0) failure_ = std::move(failure);
}

void DeathEvidence::judge(wire::DeathRecord* r, const RankChild& child, bool stopped) const {
  using wire::Cause;
  const int status = child.status();
  const OomKill& oom = child.oom();
  r->core_dumped = WIFSIGNALED(status) && WCOREDUMP(status);
  const int as_shell = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (as_shell == 0) return;
  if (unstarted_) {
    r->cause = Cause::unstarted;
    r->code = unstarted_->code;
    r->text = unstarted_->text;
    r->hint = unstarted_->hint;
  } else if (!oom.text.empty() && (!stopped || oom.at_us >= 0)) {
    r->cause = Cause::oom;
    r->code = SIGKILL;
    r->text = oom.text;
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
void DeathEvidence::add_system_facts(wire::DeathRecord* r) const {
  if (r->cause == wire::Cause::signalled && r->code == SIGBUS) {
    r->text = full_shared_memory();
    if (!r->text.empty()) {
      r->fact = wire::DeathFact::shared_memory_full;
      r->hint = "give it more: mount -o remount,size=8G /dev/shm, or docker run --shm-size=8g";
    }
  }
  if (r->core_dumped) r->hint = core_place(core_pattern(), start_.cwd);
}

/// Adds facts from the rank's last words.
void DeathEvidence::add_last_words(wire::DeathRecord* r, const RankChild& child, const Output& error,
                                   const std::string& fatal) const {
  // @p fatal may be the crash of a worker.  So it counts only if the rank itself has crashed.
  const bool crashed =
      r->cause == wire::Cause::signalled &&
      (r->code == SIGSEGV || r->code == SIGABRT || r->code == SIGBUS || r->code == SIGFPE || r->code == SIGILL);
  if (!crashed) r->frame.reset();
  if (r->cause == wire::Cause::signalled) {
    const std::string limit = reached_limit(*r);
    if (!limit.empty()) r->fact = wire::DeathFact::limit;
    std::vector<std::string> parts = {r->text, crashed ? fatal : std::string(), thrown_exception(r->tail), limit};
    std::erase(parts, "");
    r->text = join(parts, "; ");
  } else if (r->cause == wire::Cause::exited) {
    r->text = killed_text(child.killed());
    const bool by_words = start_.is_python && (r->code == 1 || r->code == 2) && r->traceback.empty();
    if (r->text.empty() && by_words) r->text = fatal_python_error(r->tail);
    if (r->text.empty()) r->text = mpi_abort(r->tail);  // MPI's own report may come later
    if (r->text.empty() && by_words) {
      r->traceback = syntax_error_traceback(r->tail);
      r->traceback_shown = !r->traceback.empty();  // without a heading, its lines were passed on as they came
    }
    if (r->text.empty() && by_words && r->traceback.empty()) r->text = error.last_line(Clock::now() - last_words_time);
    const std::string words = words_of(*r);
    if (!r->text.empty() && tells_dead_worker(words)) r->fact = wire::DeathFact::worker_killed;
    if (!r->hint.empty()) return;
    if (tells_full_disk(words)) r->hint = full_folders(start_.cwd, start_.temporary_folder);
    if (!r->hint.empty()) r->fact = wire::DeathFact::disk_full;
    if (r->hint.empty()) r->hint = mpirun_in_a_rank(join(r->tail, "\n"));
    if (r->hint.empty()) r->hint = killed_workers(child.memory_before());
    if (r->hint.empty()) r->hint = hint_for(words, address_limit_bytes());
  }
}

/// Adds facts about the GPU.  The rank's last words must be known.
void DeathEvidence::add_gpu_facts(wire::DeathRecord* r) const {
  if (r->cause != wire::Cause::exited && r->cause != wire::Cause::signalled) return;
  const GpuFacts facts = gpu_->facts();
  const std::string xid = xid_of(start_.gpu_pci, start_.started_us);  // the log's text says more than NVML's number
  GpuVerdict errors = gpu_errors(facts);
  if (!xid.empty())
    errors = {"the GPU's driver reports " + xid, "NVIDIA lists what each Xid means and whether the GPU needs a reset",
              errors.fact == wire::DeathFact::none ? wire::DeathFact::gpu_error : errors.fact};
  const std::string words = words_of(*r);
  for (const GpuVerdict& v : {errors, start_.gpu_planned ? out_of_gpu_memory(words, facts) : GpuVerdict{}}) {
    if (v.text.empty()) continue;
    r->text += (r->text.empty() ? "" : "; ") + v.text;
    if (r->hint.empty()) r->hint = v.hint;
    r->fact = v.fact;
  }
}

/// Moves the traceback of the end to the record.  Returns text that is passed on as usual.
std::string DeathEvidence::take_traceback(wire::DeathRecord* r, const RankChild& child, RankStreams& streams) const {
  using wire::Cause;
  std::string rest;
  const Output& error = streams.error();
  const std::string held = streams.error().finish(&rest);
  const bool killed = r->cause == Cause::signalled || r->cause == Cause::oom;
  // The rank has handled that exception: an unhandled exception ends Python with an exit code.
  if (r->cause == Cause::finished || r->cause == Cause::unstarted || killed) return rest + held;
  // A traceback that was shown earlier is the cause of the end only if Python ended by an exception.
  const bool by_exception = WIFEXITED(child.status()) && WEXITSTATUS(child.status()) == 1;
  r->traceback_shown = held.empty() && by_exception && !error.shown_traceback().empty();
  r->traceback = r->traceback_shown ? error.shown_traceback() : held;
  if (r->traceback.empty() && r->cause == Cause::exited) r->traceback = error_file_.read();
  return rest;
}

wire::DeathRecord DeathEvidence::record(wire::DeathRecord r, const RankChild& child, RankStreams& streams,
                                        const std::string& fatal, bool stopped, Outbox& outbox) const {
  r.rank = start_.rank;
  r.host = start_.host;
  r.pid = child.pid();
  r.time_ns = child.ended_ns();
  r.phase = phase_;
  r.failure = failure_;
  r.mismatched_call = mismatched_call_;
  r.cpu_seconds = child.cpu_seconds();
  r.peak_bytes = child.peak_bytes();
  gpu_->fill(&r);
  r.gpu_bytes_left = gpu_->bytes_left();
  judge(&r, child, stopped);
  const std::string rest = take_traceback(&r, child, streams);
  if (!rest.empty()) outbox.add(wire::Type::output, '\2' + rest);
  r.tail = streams.tail();
  add_last_words(&r, child, streams.error(), fatal);
  add_gpu_facts(&r);
  if (r.hint.empty() && words_of(r).find("No module named") != std::string::npos) r.hint = start_.kept_out;
  return r;
}

}  // namespace hvd::rank
