/// @file output_folder.h — the folder of --output-filename: one job at a time, and no files of an earlier job's ranks.
///
/// The file .hvdrun in the folder lists the rank folders that hvdrun made there.  The job that writes there holds a
/// lock on that file.  Only listed folders are ever emptied, and only of the files stdout and stderr.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

class OutputFolder {
 public:
  /// Makes the folder at @p path.  Removes the files of an earlier job's ranks.  Keeps the files in the folders of
  /// @p names, which will be truncated.
  /// @param names  the rank folders that this job will make: "rank.0"
  /// Throws Error{unavailable}: another job writes there, or the folder has a rank folder that hvdrun did not make.
  OutputFolder(const std::string& path, const std::vector<std::string>& names);
  /// Lists one more rank folder, before that folder is made.  Throws Error{unavailable}.
  void add(const std::string& name);

 private:
  void write_list();

  std::string path_;
  Fd list_;  ///< locked for this object's lifetime, on file systems that can lock
  std::vector<std::string> names_;
};

}  // namespace hvd::launcher
