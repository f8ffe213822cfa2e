#include "launcher/hang/rank_place.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

/// One line of faulthandler: `  File "/a/b.py", line 8 in step`.
struct PythonFrame {
  std::string file, line, function;
};

bool parse(const std::string& text, PythonFrame* frame) {
  constexpr std::string_view begin = "  File \"", middle = "\", line ", in = " in ";
  const std::size_t file_end = text.find(middle);
  if (!text.starts_with(begin) || file_end == std::string::npos) return false;
  const std::size_t line_begin = file_end + middle.size(), line_end = text.find(in, line_begin);
  if (line_end == std::string::npos) return false;
  *frame = {text.substr(begin.size(), file_end - begin.size()), text.substr(line_begin, line_end - line_begin),
            text.substr(line_end + in.size())};
  return true;
}

/// True for files that the user has not written: the standard library, installed packages, hvdrun's modules.
bool is_library(const std::string& file) {
  for (const char* part :
       {"/site-packages/", "/dist-packages/", "/lib/python3", "<hvdrun>", "/hvd/", "/horovod/", "<frozen "})
    if (file.find(part) != std::string::npos) return true;
  return false;
}

/// The main thread's frames, innermost first.
std::vector<PythonFrame> main_frames(const std::string& python) {
  std::vector<PythonFrame> frames;
  bool in_main = false;
  for (const std::string& line : split(python, '\n')) {
    if (line.starts_with("Current thread") || line.starts_with("Thread"))
      in_main = line.starts_with("Current thread");
    else if (PythonFrame frame; in_main && parse(line, &frame))
      frames.push_back(frame);
  }
  return frames;
}

/// The work that a frame of this file means.  With `function` not empty: a frame of that function only.
struct LongWork {
  const char *file, *function, *words;
};

constexpr const char *loader_words = "waiting for a DataLoader worker", *batch_words = "loading a batch";
constexpr std::array works{
    LongWork{"torch/utils/data/dataloader.py", "_try_get_data", loader_words},
    LongWork{"torch/utils/data/dataloader.py", "_next_data", batch_words},
    LongWork{"torch/_inductor/", "", "compiling (torch.compile)"},
    LongWork{"torch/_dynamo/convert_frame.py", "", "compiling (torch.compile)"},
    LongWork{"torch/serialization.py", "save", "saving a checkpoint"},
    LongWork{"torch/serialization.py", "load", "loading a checkpoint"},
    LongWork{"torch/distributed/checkpoint/", "", "in a checkpoint"},
    LongWork{"safetensors/", "", "in a checkpoint"},
    LongWork{"<frozen importlib._bootstrap>", "", "importing"},
};

}  // namespace

std::string user_line(const std::string& python) {
  const std::vector<PythonFrame> frames = main_frames(python);
  if (frames.empty()) return {};
  auto own = std::find_if(frames.begin(), frames.end(), [](const PythonFrame& f) { return !is_library(f.file); });
  if (own == frames.end()) own = frames.begin();
  const std::string name = own->file.substr(own->file.rfind('/') + 1) + ":" + own->line;
  return own->function == "<module>" ? name : formatted("{} ({})", name, own->function);
}

std::string long_work(const std::string& python, const std::string& state) {
  for (const PythonFrame& frame : main_frames(python)) {
    for (const LongWork& work : works)
      if (frame.file.find(work.file) != std::string::npos && (!*work.function || frame.function == work.function))
        return work.words;
    if (!is_library(frame.file)) break;
  }
  if (state != "R" && state != "D") return {};
  for (const PythonFrame& frame : main_frames(python))
    if (!is_library(frame.file) &&
        (frame.function.starts_with("eval") || frame.function.starts_with("valid") || frame.function == "test"))
      return "evaluating";
  return {};
}

bool ends_by_itself(const std::string& long_work, const std::string& state) {
  if (long_work.empty() || long_work == loader_words) return false;
  return long_work != batch_words || state == "R" || state == "D";
}

}  // namespace hvd::launcher
