#include "rank/diagnostics/stacks/stack_capture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/process/child.h"
#include "base/process/maker.h"
#include "base/process/process.h"
#include "base/process/process_handle.h"
#include "base/text.h"
#include "rank/diagnostics/stacks/stopped_stack.h"
#include "rank/diagnostics/stacks/system_call.h"
#include "rank/diagnostics/stacks/tcp_peers.h"
#include "wire/messages/stack_picture.h"

namespace hvd::rank {

namespace {

using std::chrono::milliseconds;

constexpr auto python_limit = milliseconds(1500);  ///< limit until the signal handler writes
constexpr auto quiet = milliseconds(40);           ///< the handler has ended if the file does not grow for this time
constexpr auto native_limit = milliseconds(8000);
constexpr auto worker_limit = milliseconds(300);
constexpr std::size_t most_workers = 16, most_worker_bytes = 64u << 10;
constexpr std::size_t most_text_bytes = 256u << 10;  // two such texts fit a message, also if JSON escapes all bytes

/// True if the main thread, as faulthandler writes it, waits for a worker of torch's DataLoader.
bool waits_for_worker(const std::string& python) {
  const std::string_view own = std::string_view(python).substr(std::min(python.find("Current thread"), python.size()));
  const std::size_t loader = own.find("torch/utils/data/dataloader.py\"");
  if (loader == std::string_view::npos) return false;
  const std::string_view line = own.substr(loader, own.find('\n', loader) - loader);
  return line.ends_with(" in _try_get_data");
}

/// Processes below the rank that may be such workers: those that it has forked, and those that multiprocessing spawned.
std::vector<pid_t> workers_below(pid_t pid) {
  std::vector<pid_t> found;
  for (const pid_t one : descendants(pid)) {
    if (found.size() == most_workers) break;
    if (catches_signal(one, stack_signal) ||
        whole_text(formatted("/proc/{}/cmdline", one)).find("multiprocessing.spawn") != std::string::npos)
      found.push_back(one);
  }
  return found;
}

int computing_below(pid_t pid) {
  const std::vector<pid_t> below = descendants(pid);
  return static_cast<int>(std::count_if(below.begin(), below.end(), [](pid_t p) { return process_state(p) == 'R'; }));
}

bool makes_batch(const wire::WorkerPicture& worker) {
  return worker.python.find("torch/utils/data/_utils/fetch.py") != std::string::npos;
}

/// True if a worker without frames seems to wait for work.  Most workers do.
bool is_idle(const wire::WorkerPicture& worker) {
  return worker.state == "S" && (worker.call.empty() || worker.call.starts_with("waits for files") ||
                                 worker.call.starts_with("waits for another thread"));
}

}  // namespace

StackCapture::StackCapture() : file_(memfd_create("hvdrank-stacks", MFD_CLOEXEC)) {
  // The rank shares the file's position.  begin() truncates the file; with O_APPEND a late write then leaves no hole.
  if (file_) fcntl(file_.get(), F_SETFL, O_APPEND);
}

void StackCapture::begin(pid_t pid, bool native) {
  pid_ = pid;
  native_wanted_ = native;
  workers_.clear();
  worker_.reset();
  python_.clear(), native_text_.clear();
  size_ = 0;
  step_ = Step::python;
  state_ = process_state(pid);
  by_other_thread_ = false;
  const auto now = Clock::now();
  changed_ = now;
  limit_ = ask() ? now + python_limit : now;
  if ((state_ == 'D' || state_ == 'S') && is_frozen(pid)) state_ = 'F';
}

/// Lets faulthandler's handler run in the rank.  False: it cannot.
bool StackCapture::ask() {
  if (!file_ || state_ == 't' || !catches_signal(pid_, stack_signal) || ftruncate(file_.get(), 0) != 0) return false;
  if (state_ == 'T') return start_helper("--stopped-stack", -1) > 0;
  // To the main thread: faulthandler marks the thread that gets the signal as the current thread.
  if (state_ != 'D') return syscall(SYS_tgkill, pid_, pid_, stack_signal) == 0;
  const std::optional<pid_t> thread = other_thread(pid_);
  by_other_thread_ = thread.has_value();
  return thread && syscall(SYS_tgkill, pid_, *thread, stack_signal) == 0;
}

/// Starts `hvdrank WHAT PID`.  The guard reaps all its children.  -1: it could not be started
pid_t StackCapture::start_helper(const char* what, int output) const {
  try {
    return start_child(
               {.program = "/proc/self/exe", .arguments = {"hvdrank", what, std::to_string(pid_)}, .output = output})
        .pid;
  } catch (const Error&) { return -1; }
}

std::string StackCapture::fatal() const {
  return file_ ? fatal_place(whole_text(formatted("/proc/self/fd/{}", file_.get()))) : std::string();
}

namespace {

struct FatalFrames {
  std::vector<wire::SourceFrame> frames;  ///< innermost first
  bool of_main_thread = false;            ///< the thread that failed runs no Python; these are the main thread's
};

constexpr const char* own_hooks = "<hvdrun>";  ///< the file of hvdrun's functions around torch's

/// The frames of the last fatal error in @p written, without those of hvdrun's hooks.  faulthandler writes the main
/// thread last, and marks the thread that failed as the current one.
FatalFrames fatal_frames(const std::string& written) {
  FatalFrames found;
  const std::size_t fatal = written.rfind("Fatal Python error: ");
  if (fatal == std::string::npos) return found;
  bool in_current = false;
  for (const std::string& line : split(written.substr(fatal), '\n')) {
    const bool current = line.starts_with("Current thread"), other = line.starts_with("Thread ");
    if (other && in_current && !found.frames.empty()) break;
    if (current || other) found = {{}, other}, in_current = current;
    if (auto frame = wire::frame_of_line(line); frame && !frame->function.empty() && frame->file != own_hooks)
      found.frames.push_back(std::move(*frame));
  }
  return found;
}

bool is_own(const wire::SourceFrame& frame) { return !wire::is_library(frame.file); }

std::string words_of(const wire::SourceFrame& frame) {
  return formatted("{}:{} ({})", frame.file, frame.line, frame.function);
}

}  // namespace

std::string fatal_place(const std::string& written) {
  const auto& [frames, of_main_thread] = fatal_frames(written);
  if (frames.empty()) return {};
  const std::string innermost = (of_main_thread ? "its main thread was in " : "in ") + words_of(frames[0]);
  const auto own = std::find_if(frames.begin(), frames.end(), is_own);
  return own == frames.begin() || own == frames.end() ? innermost : innermost + ", called from " + words_of(*own);
}

std::optional<wire::SourceFrame> StackCapture::fatal_frame() const {
  if (!file_) return {};
  const std::vector<wire::SourceFrame> frames =
      fatal_frames(whole_text(formatted("/proc/self/fd/{}", file_.get()))).frames;
  if (frames.empty()) return {};
  const auto own = std::find_if(frames.begin(), frames.end(), is_own);
  return own == frames.end() ? frames[0] : *own;
}

std::optional<std::string> StackCapture::step() {
  const auto now = Clock::now();
  if (step_ == Step::python) {
    const off_t end = lseek(file_.get(), 0, SEEK_END);
    if (end > 0 && static_cast<std::size_t>(end) != size_) size_ = static_cast<std::size_t>(end), changed_ = now;
    const bool done = size_ > 0 ? now - changed_ > quiet : now >= limit_;
    return done ? after_python() : std::nullopt;
  }
  if (step_ == Step::worker) {
    const off_t end = lseek(file_.get(), 0, SEEK_END);
    if (end > 0 && static_cast<std::size_t>(end) != size_) size_ = static_cast<std::size_t>(end), changed_ = now;
    if (size_ > 0 ? now - changed_ <= quiet : now < limit_) return {};
    after_worker();
    return next_worker() ? std::nullopt : after_workers();
  }
  if (step_ != Step::native) return {};
  char piece[16384];
  for (ssize_t n; (n = read(helper_.get(), piece, sizeof piece)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && now < limit_) return {};
    if (n < 0) break;
    if (native_text_.size() < most_text_bytes) native_text_.append(piece, static_cast<std::size_t>(n));
  }
  return finish();
}

/// Returns the text that was written since the file was emptied.
std::string StackCapture::written() {
  std::string text(std::min(size_, most_text_bytes), '\0');
  const ssize_t n = pread(file_.get(), text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

std::optional<std::string> StackCapture::after_python() {
  if (size_ > 0) {
    python_ = written();
    if (by_other_thread_) python_ = with_main_as_current(python_);
  }
  if (waits_for_worker(python_)) workers_ = workers_below(pid_);
  return next_worker() ? std::nullopt : after_workers();
}

/// Asks the next worker that can answer.  False: there is none, or one is found that makes a batch.
bool StackCapture::next_worker() {
  while (!workers_.empty() && !(worker_ && makes_batch(*worker_))) {
    const pid_t pid = workers_.back();
    workers_.pop_back();
    size_ = 0;
    const ProcessHandle worker(pid);  // before the looks at it: its id may be another process's by then
    const char state = process_state(pid);
    if (state == 0 || state == 'Z') continue;
    asked_ = {pid, std::string(1, state), {}, system_call_of(pid, pid)};
    const bool answers = state != 'T' && state != 't' && state != 'D' && catches_signal(pid, stack_signal);
    if (answers && ftruncate(file_.get(), 0) == 0) {
      worker.signal(stack_signal);
      step_ = Step::worker;
      changed_ = Clock::now();
      limit_ = changed_ + worker_limit;
      return true;
    }
    after_worker();
  }
  return false;
}

/// Keeps the worker that was asked, unless a better one is known or it waits for work.
void StackCapture::after_worker() {
  if (size_ > 0) asked_.python = written().substr(0, most_worker_bytes);
  if (makes_batch(asked_) || (!worker_ && asked_.python.empty() && !is_idle(asked_))) worker_ = std::move(asked_);
}

std::optional<std::string> StackCapture::after_workers() {
  if (!native_wanted_) return finish();
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return finish();
  helper_ = Fd(pipe[0]);
  const Fd theirs(pipe[1]);
  fcntl(helper_.get(), F_SETFL, O_NONBLOCK);
  helper_pid_ = start_helper("--native-stack", theirs.get());
  if (helper_pid_ < 0) return finish();
  step_ = Step::native;
  limit_ = Clock::now() + native_limit;
  return {};
}

std::string StackCapture::finish() {
  if (helper_pid_ > 0) kill(helper_pid_, SIGKILL);  // the guard reaps all its children
  helper_pid_ = -1;
  helper_.reset();
  step_ = Step::idle;
  return to_json(wire::StackPicture{std::string(state_ ? 1 : 0, state_), python_, native_text_, own_addresses(),
                                    unanswered(pid_), std::move(worker_), computing_below(pid_)});
}

}  // namespace hvd::rank
