#include "launcher/hang/rank_place.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using wire::SourceFrame;

struct ThreadFrames {
  bool is_main = false;
  std::vector<SourceFrame> frames;  ///< innermost first
};

std::vector<ThreadFrames> threads_of(const std::string& python) {
  std::vector<ThreadFrames> threads;
  for (const std::string& line : split(python, '\n')) {
    const bool is_main = line.starts_with("Current thread");
    if (is_main || line.starts_with("Thread"))
      threads.push_back({is_main, {}});
    else if (auto frame = threads.empty() ? std::nullopt : wire::frame_of_line(line); frame && !frame->function.empty())
      threads.back().frames.push_back(std::move(*frame));
  }
  return threads;
}

/// The main thread's frames, innermost first.
std::vector<SourceFrame> main_frames(const std::string& python) {
  for (ThreadFrames& thread : threads_of(python))
    if (thread.is_main) return std::move(thread.frames);
  return {};
}

/// The innermost line of the user's own code; null: there is none.
const SourceFrame* own_frame(const std::vector<SourceFrame>& frames) {
  const auto own =
      std::find_if(frames.begin(), frames.end(), [](const SourceFrame& f) { return !wire::is_library(f.file); });
  return own == frames.end() ? nullptr : &*own;
}

std::string text_of(const SourceFrame& frame) {
  const std::string name = formatted("{}:{}", frame.file.substr(frame.file.rfind('/') + 1), frame.line);
  return frame.function == "<module>" ? name : formatted("{} ({})", name, frame.function);
}

/// The work that a stack shows by a frame in `file`.  With `function`, only a frame of that function counts.
struct LongWork {
  const char *file, *function, *words;
};

constexpr const char *loader_words = "waiting for a DataLoader worker", *batch_words = "loading a batch",
                     *threads_words = "waiting for its threads, since its script has ended";
constexpr std::array works{
    LongWork{"torch/utils/data/dataloader.py", "_try_get_data", loader_words},
    LongWork{"torch/utils/data/dataloader.py", "_next_data", batch_words},
    LongWork{"torch/_inductor/", "", "compiling (torch.compile)"},
    LongWork{"torch/_dynamo/convert_frame.py", "", "compiling (torch.compile)"},
    LongWork{"jax/_src/compiler.py", "", "compiling (jax.jit)"},
    LongWork{"tensorflow/python/framework/func_graph.py", "func_graph_from_py_func", "compiling (tf.function)"},
    LongWork{"torch/serialization.py", "save", "saving a checkpoint"},
    LongWork{"torch/serialization.py", "load", "loading a checkpoint"},
    LongWork{"torch/distributed/checkpoint/", "", "in a checkpoint"},
    LongWork{"safetensors/", "", "in a checkpoint"},
    LongWork{"<frozen importlib._bootstrap>", "", "importing"},
    LongWork{"threading.py", "_shutdown", threads_words},
};

/// True if this frame, among the innermost library frames of the main thread, shows a wait for other ranks.  Example:
/// one rank alone in dcp.save(), which calls a collective.
bool is_collective(const SourceFrame& frame) {
  constexpr std::array files{"torch/distributed/distributed_c10d.py", "hvd/torch/_c10d/", "hvd/_runtime/"};
  return frame.function != "<module>" &&
         std::ranges::any_of(files, [&](const char* file) { return frame.file.find(file) != std::string::npos; });
}

}  // namespace

std::optional<SourceFrame> user_frame(const std::string& python) {
  const std::vector<SourceFrame> frames = main_frames(python);
  if (frames.empty()) return {};
  const SourceFrame* own = own_frame(frames);
  return own ? *own : frames[0];
}

std::string user_line(const std::string& python) {
  const std::optional<SourceFrame> own = user_frame(python);
  return own ? text_of(*own) : std::string();
}

std::string c10d_function(const std::string& python) {
  std::string function;
  for (const SourceFrame& frame : main_frames(python)) {
    if (!wire::is_library(frame.file)) break;
    if (frame.file.ends_with("torch/distributed/distributed_c10d.py") && !frame.function.starts_with("_"))
      function = frame.function;
  }
  return function;
}

std::string long_work(const std::string& python, const std::string& state) {
  for (const SourceFrame& frame : main_frames(python)) {
    if (is_collective(frame)) return {};
    for (const LongWork& work : works)
      if (frame.file.find(work.file) != std::string::npos && (!*work.function || frame.function == work.function))
        return work.words;
    if (!wire::is_library(frame.file)) break;
  }
  if (state != "R" && state != "D") return {};
  for (const SourceFrame& frame : main_frames(python))
    if (!wire::is_library(frame.file) &&
        (frame.function.starts_with("eval") || frame.function.starts_with("valid") || frame.function == "test"))
      return "evaluating";
  return {};
}

namespace {

/// "and a thread is in data.py:18 (fill)".  Empty: only the main thread has the user's code.
std::string thread_place(const std::string& python) {
  for (const ThreadFrames& thread : threads_of(python))
    if (const SourceFrame* own = thread.is_main ? nullptr : own_frame(thread.frames))
      return "and a thread is in " + text_of(*own);
  return {};
}

/// "which is in data.py:41 (__getitem__)", "which has process id 12 and reads from /data/part-3".
std::string worker_place(const wire::WorkerPicture& worker) {
  // A worker is forked, so its stack ends with frames of the rank.  Only frames inside the fetch are the worker's own.
  std::optional<SourceFrame> innermost, own;
  for (const SourceFrame& frame : main_frames(worker.python)) {
    if (frame.file.find("torch/utils/data/_utils/fetch.py") != std::string::npos) break;
    if (!innermost) innermost = frame;
    if (!own && !wire::is_library(frame.file)) own = frame;
  }
  if (innermost)
    return (worker.state == "R" ? "which computes in " : "which is in ") + text_of(own ? *own : *innermost);
  const std::string does = worker.state == "T" || worker.state == "t" ? "is stopped"
                           : worker.state == "D"                      ? "waits for a disk or a device"
                                                                      : worker.call;
  return formatted("which has process id {}{}", worker.pid, does.empty() ? "" : " and " + does);
}

}  // namespace

std::string helpers_place(const wire::StackPicture& picture) {
  const std::string work = long_work(picture.python, picture.state);
  if (work == threads_words) return thread_place(picture.python);
  if (picture.worker) return worker_place(*picture.worker);
  if (picture.state != "S" || picture.computing == 0 || work == loader_words) return {};
  return formatted("while {} of its child processes compute{}", picture.computing, picture.computing == 1 ? "s" : "");
}

bool is_at_work(const wire::StackPicture& picture) {
  const std::string work = long_work(picture.python, picture.state);
  return work == loader_words ? picture.worker && picture.worker->state == "R" : ends_by_itself(work, picture.state);
}

bool ends_by_itself(const std::string& long_work, const std::string& state) {
  if (long_work.empty() || long_work == loader_words || long_work == threads_words) return false;
  return long_work != batch_words || state == "R" || state == "D";
}

}  // namespace hvd::launcher
