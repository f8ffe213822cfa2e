/// @file pmix_job.h — the data that describes a job to each of its processes by PMIx.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pmix/pmix_library.h"

namespace hvd::pmix {

struct HostRanks {
  std::string host;        ///< a name that no other host of the job has
  std::vector<int> ranks;  ///< world ranks on this host, by local rank
};

struct PmixJob {
  std::string name;  ///< PMIx's namespace: random, known only to the job's hosts
  std::vector<HostRanks> hosts;
  int host = 0;                 ///< index of this host
  std::string folder;           ///< for files of PMIx and Open MPI; private to this user
  bool oversubscribed = false;  ///< a host has more ranks than cores: waiting ranks must yield the processor

  std::vector<int> programs{};  ///< number of ranks of each program, in order of ranks; empty: one program

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

/// An array of pmix_info_t.  Owns the memory to which its values point.  Move-only.  libpmix reads the array until its
/// call completes.
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
  /// Adds a map of processes in libpmix's compressed form.  Takes ownership of @p regex, which libpmix allocated by
  /// malloc.
  void add_regex(const char* key, char* regex, bool has_regex_type);
  /// Adds all @p items as one value.
  void add_array(const char* key, InfoArray items);

  pmix_info_t* data() { return items_.data(); }
  std::size_t size() const { return items_.size(); }

 private:
  pmix_info_t& append(const char* key, pmix_data_type_t type);
  std::vector<pmix_info_t> items_;
};

/// The description of @p job for the PMIx server: sizes, maps of hosts and ranks, the place of each process.
/// Throws Error{unavailable} if libpmix refuses a map.
InfoArray describe(const PmixLibrary& library, const PmixJob& job);

}  // namespace hvd::pmix
