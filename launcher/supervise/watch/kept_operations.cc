#include "launcher/supervise/watch/kept_operations.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/files/trust.h"
#include "base/state_folder.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto answer_limit = 3000ms;
constexpr std::size_t most_operations = 4096, most_of_all_ranks = 1 << 17;
constexpr std::size_t most_files = 20;

/// Removes the oldest files.
void thin_out(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".ops") files.emplace_back(entry.last_write_time(error), entry.path());
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + most_files < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace

void KeptOperations::ask(Rounds<wire::RankOperations>::Done done) {
  const std::size_t ranks = std::max<std::size_t>(map_.ranks.size(), 1);
  const auto most = static_cast<std::uint32_t>(std::clamp<std::size_t>(most_of_all_ranks / ranks, 64, most_operations));
  const std::string body(reinterpret_cast<const char*>(&most), sizeof most);
  std::set<int> asked;
  for (const MappedRank& p : map_.ranks)
    if (session_.tell(p.rank, wire::Type::ask_operations, body)) asked.insert(p.rank);
  rounds_.open(std::move(asked), answer_limit, std::move(done));
}

void KeptOperations::take(int rank, wire::RankOperations operations) {
  operations.host = map_.host_of(rank).name;
  rounds_.take(rank, operations);
  last_[rank] = std::move(operations);
}

std::string KeptOperations::keep(const wire::JobOperations& operations) const {
  const bool any = std::any_of(operations.begin(), operations.end(),
                               [](const auto& r) { return r.second.submitted > 0 || r.second.collectives; });
  const std::string folder = state_folder("operations");
  if (!any || folder.empty()) return "";
  try {
    make_own_folder(folder);
    const std::string path = folder + "/" + job_ + ".ops";
    replace_own_file(path, operations_file(operations), 0600);
    thin_out(folder);
    return path;
  } catch (const std::exception&) {
    return "";
  }  // the disk is full, or the home read only: the job goes on without the file
}

}  // namespace hvd::launcher
