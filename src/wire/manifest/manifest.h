/// @file manifest.h — hvdrun's description of one rank, for its guard.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

inline constexpr int most_ranks = 1 << 24;  ///< of a job

enum class PayloadKind : std::uint8_t { pickle, script, module, command };

struct Payload {
  PayloadKind kind = PayloadKind::command;
  std::string name;               ///< path as typed, module name, or program
  std::vector<std::string> args;  ///< the words after it on the command line
  std::string sha256;             ///< of a pickle, or of a script that hvdrun read: hex digest, checked before loading
  std::uint64_t bytes = 0;        ///< pickle: length
  bool deliver = false;           ///< pickle: this guard receives the bytes and shares them on its host
  std::string path;               ///< pickle, not deliver: this host's copy; empty: another manifest will name it
};

/// Cores and GPU of the rank.  hvdrun plans them for its own host, the guard for other hosts, both by
/// placement/rank_resources.h.
struct Placement {
  bool planned = false;                       ///< the fields down to `memory_node` hold the plan
  std::vector<int> cpus;                      ///< logical CPU numbers to bind to; empty: unbound
  int threads = 0;                            ///< OMP_NUM_THREADS unless the user set it; 0: number of cpus
  std::string gpu;                            ///< UUID, else PCI address, of the GPU for this rank; empty: none
  std::optional<std::string> visible_gpus{};  ///< CUDA_VISIBLE_DEVICES; nothing: unchanged
  int memory_node = -1;                       ///< NUMA node whose memory the rank prefers; -1: none
  bool bind = true;
  std::string gpu_mode = "all";  ///< all, own, none
  bool share_gpus = false;       ///< more ranks than GPUs are fine
};

struct RankManifest {
  std::string job;  ///< short unique id, also in HVD_JOB
  int rank = 0, size = 1, local_rank = 0, local_size = 1, cross_rank = 0, cross_size = 1;
  std::string host;                        ///< as the user named it; used in tags
  std::string cwd;                         ///< working folder; on a host without it, the home folder with a warning
  std::string python;                      ///< interpreter for pickle, script, module
  std::map<std::string, std::string> env;  ///< whole environment of the rank, before the guard's additions
  Payload payload;
  Placement placement;
  double grace_seconds = 5;
  bool collect_results = false;
  bool timeline = false;
  bool input = false;                  ///< its standard input comes over the channel; else it is /dev/null
  bool trusted_only = false;           ///< run no program that other users could have chosen: base/files/trust.h
  std::vector<int> software_owners{};  ///< with trusted_only: further users whose programs may be run
};

/// The Python file that a payload runs, as typed: train.py for `train.py` and for `python -u train.py`.  May be empty.
std::string python_file(const Payload& payload);
inline constexpr const char* folder_program = "__main__.py";  ///< Python runs it if python_file() is a folder
/// True if the payload reads its program from its standard input or another descriptor of hvdrun.  Examples: `python
/// -`, `python` alone, `/dev/stdin`, `/dev/fd/63`.
bool is_read_from_input(const Payload& payload);
/// "python", "/usr/bin/python3.11": a program that runs Python files.
bool is_python(std::string_view program);

std::string to_json(const RankManifest& m);
/// Throws Error{usage} naming the field when @p text is not a manifest of protocol_version.
RankManifest manifest_from_json(const std::string& text);

}  // namespace hvd::wire
