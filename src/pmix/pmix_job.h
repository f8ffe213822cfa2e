/// @file pmix_job.h — the data by which PMIx describes a job to each of its processes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pmix/pmix_library.h"

namespace hvd::pmix {

struct HostRanks {
  std::string host;        ///< a name, distinct for each host
  std::vector<int> ranks;  ///< world ranks there, by local rank
};

struct PmixJob {
  std::string name;  ///< PMIx's namespace: random, known to the job's own hosts alone
  std::vector<HostRanks> hosts;
  int host = 0;                 ///< index of this host
  std::string folder;           ///< for files of PMIx and Open MPI; only we can enter it
  bool oversubscribed = false;  ///< more ranks than cores on some host: waiting ranks must yield

  std::vector<int> programs{};  ///< number of ranks of each program, in order; empty: there is one program

  /// The number of the rank's program: MPI_APPNUM.
  std::uint32_t program_of(int rank) const {
    std::uint32_t number = 0;
    for (int end = 0; number + 1 < programs.size() && rank >= (end += programs[number]);) ++number;
    return number;
  }
  int size() const {
    std::size_t all = 0;
    for (const HostRanks& h : hosts) all += h.ranks.size();
    return static_cast<int>(all);
  }
  const std::vector<int>& local_ranks() const { return hosts[static_cast<std::size_t>(host)].ranks; }
};

/// An array of pmix_info_t with all that its values point to.  Move-only; lent to libpmix, which copies it.
class InfoArray {
 public:
  InfoArray() = default;
  InfoArray(InfoArray&& other) noexcept : items_(std::move(other.items_)) { other.items_.clear(); }
  InfoArray& operator=(InfoArray&&) = delete;
  ~InfoArray();

  void add_text(const char* key, const std::string& text);
  void add_bool(const char* key, bool yes);
  void add_u16(const char* key, std::uint16_t value);
  void add_u32(const char* key, std::uint32_t value);
  void add_rank(const char* key, int rank);
  /// A map of processes in libpmix's compressed form.  Takes over @p regex, which libpmix made by malloc.
  void add_regex(const char* key, char* regex, bool has_regex_type);
  /// @p items become one value.
  void add_array(const char* key, InfoArray items);

  pmix_info_t* data() { return items_.data(); }
  std::size_t size() const { return items_.size(); }

 private:
  pmix_info_t& append(const char* key, pmix_data_type_t type);
  std::vector<pmix_info_t> items_;
};

/// The server's description of @p job: sizes, maps of hosts and ranks, the place of each process.
/// Throws Error{unavailable} where libpmix refuses.
InfoArray describe(const PmixLibrary& library, const PmixJob& job);

}  // namespace hvd::pmix
