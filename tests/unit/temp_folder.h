/// @file temp_folder.h — a folder of a test's own, removed with all in it at the end of its scope.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace hvd::test {

struct TempFolder {
  /// @param prefix  of its path; the name is made unique
  explicit TempFolder(const std::string& prefix = "/tmp/hvd-test-") : path(prefix + "XXXXXX") {
    if (!mkdtemp(path.data())) throw std::runtime_error("mkdtemp " + path);
    root = path;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(root); }

  std::string path;            ///< without a slash at its end
  std::filesystem::path root;  ///< the same
};

}  // namespace hvd::test
