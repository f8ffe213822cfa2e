/// @file file_sink.h — the timeline of one rank, where no hvdrun collects it.
#pragma once
#include <memory>
#include <string>

#include "recorder/trace/tracer.h"

namespace hvd::trace {

struct FileSinkOptions {
  std::string path;  ///< as the user gave it; every rank of several writes its own, see rank_path()
  int rank = 0, size = 1;
  std::string host;
};

/// Opens the file at once.  Throws Error{usage} when it cannot be written or HVD_TIMELINE_MAX_MB is no size.
/// The file begins with what `hvd-timeline merge` needs to align it with the other ranks' files.
std::unique_ptr<Sink> make_file_sink(const FileSinkOptions& options);

}  // namespace hvd::trace
