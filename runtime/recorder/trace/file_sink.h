/// @file file_sink.h — writes the timeline of one rank to a file, if no hvdrun collects it.
#pragma once
#include <memory>
#include <string>

#include "recorder/trace/tracer.h"

namespace hvd::trace {

struct FileSinkOptions {
  std::string path;  ///< as the user gave it; each rank writes a file of its own, see rank_path()
  int rank = 0, size = 1;
  std::string host;
};

/// Opens the file at once.  Throws Error{usage} if the file cannot be written, or if HVD_TIMELINE_MAX_MB is not a size.
/// The file begins with the clock data by which `hvd-timeline merge` aligns it with the other ranks' files.
std::unique_ptr<Sink> make_file_sink(const FileSinkOptions& options);

}  // namespace hvd::trace
