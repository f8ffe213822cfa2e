#include "launcher/hang/rank_place.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using wire::SourceFrame;

/// The main thread's frames, innermost first.
std::vector<SourceFrame> main_frames(const std::string& python) {
  std::vector<SourceFrame> frames;
  bool in_main = false;
  for (const std::string& line : split(python, '\n')) {
    if (line.starts_with("Current thread") || line.starts_with("Thread"))
      in_main = line.starts_with("Current thread");
    else if (auto frame = in_main ? wire::frame_of_line(line) : std::nullopt; frame && !frame->function.empty())
      frames.push_back(std::move(*frame));
  }
  return frames;
}

/// The work that a frame of this file means.  With `function` not empty: a frame of that function only.
struct LongWork {
  const char *file, *function, *words;
};

constexpr const char* loader_words = "waiting for a DataLoader worker";
constexpr std::array works{
    LongWork{"torch/utils/data/dataloader.py", "_try_get_data", loader_words},
    LongWork{"torch/utils/data/dataloader.py", "_next_data", "loading a batch"},
    LongWork{"torch/_inductor/", "", "compiling (torch.compile)"},
    LongWork{"torch/_dynamo/convert_frame.py", "", "compiling (torch.compile)"},
    LongWork{"torch/serialization.py", "save", "saving a checkpoint"},
    LongWork{"torch/serialization.py", "load", "loading a checkpoint"},
    LongWork{"torch/distributed/checkpoint/", "", "in a checkpoint"},
    LongWork{"safetensors/", "", "in a checkpoint"},
    LongWork{"<frozen importlib._bootstrap>", "", "importing"},
};

}  // namespace

std::optional<SourceFrame> user_frame(const std::string& python) {
  const std::vector<SourceFrame> frames = main_frames(python);
  if (frames.empty()) return {};
  const auto own =
      std::find_if(frames.begin(), frames.end(), [](const SourceFrame& f) { return !wire::is_library(f.file); });
  return own == frames.end() ? frames[0] : *own;
}

std::string user_line(const std::string& python) {
  const std::optional<SourceFrame> own = user_frame(python);
  if (!own) return {};
  const std::string name = formatted("{}:{}", own->file.substr(own->file.rfind('/') + 1), own->line);
  return own->function == "<module>" ? name : formatted("{} ({})", name, own->function);
}

std::string long_work(const std::string& python) {
  for (const SourceFrame& frame : main_frames(python)) {
    for (const LongWork& work : works)
      if (frame.file.find(work.file) != std::string::npos && (!*work.function || frame.function == work.function))
        return work.words;
    if (!wire::is_library(frame.file)) break;
  }
  return {};
}

bool ends_by_itself(const std::string& long_work) { return !long_work.empty() && long_work != loader_words; }

}  // namespace hvd::launcher
