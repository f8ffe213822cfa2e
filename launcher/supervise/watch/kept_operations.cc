#include "launcher/supervise/watch/kept_operations.h"

#include <algorithm>
#include <filesystem>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/own_file.h"
#include "base/files/trust.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto answer_limit = 3000ms;
constexpr std::size_t most_operations = 4096, most_of_all_ranks = 1 << 17;
constexpr std::size_t most_files = 20;

/// Empty where there is no home.
std::string usual_folder() {
  const auto absolute = [](const char* name) -> std::string {
    const char* value = environment_value(name);
    return value && value[0] == '/' ? value : "";
  };
  if (const std::string state = absolute("XDG_STATE_HOME"); !state.empty()) return state + "/hvdrun/operations";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.local/state/hvdrun/operations";
}

/// The oldest go.
void thin_out(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".ops") files.emplace_back(entry.last_write_time(error), entry.path());
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + most_files < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace

void KeptOperations::ask(std::function<void(const wire::JobOperations&)> done) {
  Round round{{}, {}, Clock::now() + answer_limit, std::move(done)};
  const std::size_t ranks = std::max<std::size_t>(map_.ranks.size(), 1);
  const auto most = static_cast<std::uint32_t>(std::clamp<std::size_t>(most_of_all_ranks / ranks, 64, most_operations));
  for (const MappedRank& p : map_.ranks)
    if (session_.ask_operations(p.rank, most)) round.open.insert(p.rank);
  rounds_.push_back(std::move(round));
}

void KeptOperations::take(int rank, wire::RankOperations operations) {
  operations.host = map_.host_of(rank).name;
  for (Round& round : rounds_)
    if (round.open.erase(rank)) round.answers[rank] = operations;
  last_[rank] = std::move(operations);
}

void KeptOperations::turn() {
  for (std::size_t i = 0; i < rounds_.size();) {
    if (!rounds_[i].open.empty() && Clock::now() < rounds_[i].limit) {
      ++i;
      continue;
    }
    const Round round = std::move(rounds_[i]);
    rounds_.erase(rounds_.begin() + static_cast<std::ptrdiff_t>(i));
    round.done(round.answers);
  }
}

std::string KeptOperations::keep(const wire::JobOperations& operations) const {
  const bool any = std::any_of(operations.begin(), operations.end(),
                               [](const auto& r) { return r.second.submitted > 0 || r.second.collectives; });
  const std::string folder = usual_folder();
  if (!any || folder.empty()) return "";
  try {
    make_own_folder(folder);
    const std::string path = folder + "/" + job_ + ".ops";
    replace_own_file(path, operations_file(operations), 0600);
    thin_out(folder);
    return path;
  } catch (const std::exception&) { return ""; }  // a full disk, a home that is read only: the job goes on without
}

}  // namespace hvd::launcher
