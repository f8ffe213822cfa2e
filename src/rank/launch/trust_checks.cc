#include "rank/launch/trust_checks.h"

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/files/sha256.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

namespace fs = std::filesystem;
using wire::PayloadKind;

constexpr std::size_t most_script_bytes = 64u << 20;
constexpr std::size_t shown_digits = 12;

/// Checks the payload's Python file: its owners, and its SHA-256 if the manifest has one.
/// @return the file's folder, without links; empty if @p file is a folder or missing
/// Throws Error{usage}.
std::string look_at_file(const wire::RankManifest& m, const std::string& file, const std::string& cwd) {
  const fs::path path = fs::path(cwd) / file;
  const PathCheck found = look_at(path);
  if (!found.fd) return {};  // Python reports the missing file
  found.need_trust(file);
  if (found.is_folder) {
    look_at(path, PathUse::modules).need_trust(file);
    look_at(path / wire::folder_program).need_trust(fs::path(file) / wire::folder_program);
    return {};
  }
  const std::string sha256 = sha256_hex(read_found(found, file, most_script_bytes));
  if (!m.payload.sha256.empty() && sha256 != m.payload.sha256)
    throw Error(Code::usage, "",
                formatted("{} on {} is not the script that hvdrun read: its SHA-256 is {}…, expected {}…", file, m.host,
                          sha256.substr(0, shown_digits), m.payload.sha256.substr(0, shown_digits)),
                "copy it to " + m.host + ", or use --allow-writable to run the copy there");
  return fs::path(found.real_path()).parent_path();
}

}  // namespace

Imports imports_of(const wire::RankManifest& m, const std::string& cwd) {
  Imports out;
  if (!m.trusted_only) return out;
  const bool is_python = m.payload.kind != PayloadKind::command || wire::is_python(m.payload.name);
  if (const std::string file = wire::python_file(m.payload); !file.empty())
    out.folder = look_at_file(m, file, cwd);
  else if (is_python)
    out.folder = cwd;
  if (out.folder.empty()) return out;
  const std::string doubt = look_at(out.folder, PathUse::modules).doubt;
  if (!doubt.empty()) out.kept_out = formatted("imports do not look in {}: {}", out.folder, doubt);
  return out;
}

void need_trusted_program(const wire::RankManifest& m, const std::string& path) {
  if (!m.trusted_only) return;
  SoftwareOwners owners;
  for (const int uid : m.software_owners) owners.known.push_back(static_cast<uid_t>(uid));
  look_at(path, PathUse::file, owners).need_trust(path);
}

void leave_folder_out(Environment& env, const std::string& cwd) {
  if (look_at(cwd, PathUse::modules).doubt.empty()) return;
  for (const char* name : {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"})
    if (const auto it = env.find(name); it != env.end()) it->second = absolute_only(it->second);
}

std::string program_path(const std::string& name, const std::string& search_path, const std::string& cwd) {
  if (name.find('/') != std::string::npos) return fs::path(cwd) / name;
  for (const std::string& folder : split(search_path, ':')) {
    const fs::path path = fs::path(cwd) / folder / name;
    std::error_code ec;
    if (fs::is_regular_file(path, ec) && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

}  // namespace hvd::rank
