#include "source_frame.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/text.h"

namespace hvd::wire {

std::optional<SourceFrame> frame_of_line(std::string_view line) {
  constexpr std::string_view begin = "File \"", middle = "\", line ", in = " in ";
  line = trim(line);
  const std::size_t file_end = line.find(middle);
  if (!line.starts_with(begin) || file_end == line.npos) return {};
  const std::string_view rest = line.substr(file_end + middle.size());
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const auto number = to_integer(rest.substr(0, digits));
  if (!number || *number > INT32_MAX) return {};
  const std::size_t function = rest.find(in, digits);
  return SourceFrame{std::string(line.substr(begin.size(), file_end - begin.size())), static_cast<int>(*number),
                     function == rest.npos ? "" : std::string(rest.substr(function + in.size()))};
}

namespace {

/// True for a file of the packages hvd and horovod in any folder, such as a clone of Horovod.  Other files below a
/// folder of that name are the user's.
bool is_of_our_packages(std::string_view file) {
  constexpr std::array inside{"_",           "common/", "data/",  "elastic.py", "exceptions.py",   "jax/",
                              "keras/",      "mxnet/",  "ray/",   "numpy.py",   "process_sets.py", "network.py",
                              "tensorflow/", "torch/",  "spark/", "runner/"};
  for (const std::string_view package : {"/hvd/", "/horovod/"})
    for (std::size_t at = file.find(package); at != file.npos; at = file.find(package, at + 1))
      if (std::ranges::any_of(
              inside, [rest = file.substr(at + package.size())](const char* part) { return rest.starts_with(part); }))
        return true;
  return false;
}

}  // namespace

bool is_library(std::string_view file) {
  for (const char* part : {"/site-packages/", "/dist-packages/", "/lib/python3", "<hvdrun>", "<frozen "})
    if (file.find(part) != file.npos) return true;
  return is_of_our_packages(file);
}

}  // namespace hvd::wire
