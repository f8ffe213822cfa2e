#include "rank/python/python_plan.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

namespace fs = std::filesystem;

bool is_program(const std::string& path) {
  std::error_code ec;
  return access(path.c_str(), X_OK) == 0 && !fs::is_directory(path, ec);
}

bool is_elf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  file.read(magic, 4);
  return file && std::string_view(magic, 4) ==
                     "\x7f"
                     "ELF";
}

/// The version in a program's name: "3.11" for ".../python3.11", "3.13t" for ".../python3.13t"; "": there is none.
std::string version_in_name(const std::string& program) {
  const std::string name = fs::path(program).filename();
  const std::size_t at = name.rfind("python3.");
  return at == std::string::npos ? "" : name.substr(at + 6);
}

/// The version in a virtual environment's pyvenv.cfg: "version = 3.11.2" (venv), or "version_info = 3.11.2.final.0"
/// (virtualenv).
std::string version_in_config(const std::string& interpreter) {
  std::ifstream file(fs::path(interpreter).parent_path().parent_path() / "pyvenv.cfg");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t eq = line.find('=');
    if (eq == std::string::npos) continue;
    const std::string_view key = trim(std::string_view(line).substr(0, eq));
    if (key != "version" && key != "version_info") continue;
    const std::vector<std::string> number = split(trim(std::string_view(line).substr(eq + 1)), '.');
    if (number.size() >= 2) return number[0] + "." + number[1];
  }
  return {};
}

/// The folder of the base interpreter from which a virtual environment's interpreter was copied (--copies), or "".
std::string home_in_config(const std::string& interpreter) {
  std::ifstream file(fs::path(interpreter).parent_path().parent_path() / "pyvenv.cfg");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t eq = line.find('=');
    if (eq != std::string::npos && trim(std::string_view(line).substr(0, eq)) == "home")
      return std::string(trim(std::string_view(line).substr(eq + 1)));
  }
  return {};
}

std::string library_in(const fs::path& prefix, const std::string& version) {
  for (const char* folder : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"})
    for (const char* suffix : {".so.1.0", ".so.1", ".so"}) {
      const fs::path path = prefix / folder / ("libpython" + version + suffix);
      if (access(path.c_str(), R_OK) == 0) return path;
    }
  return {};
}

/// The version of the only libpython3.x below @p prefix; "" if there are several.  For an interpreter named "python3".
std::string only_version(const fs::path& prefix) {
  std::string found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", ec)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("libpython3.") || !name.ends_with(".so.1.0")) continue;
    if (!found.empty()) return {};
    found = name.substr(9, name.size() - 9 - 7);
  }
  return found;
}

}  // namespace

std::string python_version(const std::string& interpreter) {
  char real[PATH_MAX];
  if (realpath(interpreter.c_str(), real) == nullptr) return {};
  std::string version = version_in_name(real);
  if (version.empty()) version = version_in_config(interpreter);
  if (version.empty()) version = only_version(fs::path(real).parent_path().parent_path());
  return version;
}

bool knows_safe_path(const std::string& version) {
  const std::vector<std::string> number = split(version.substr(0, version.find_last_of("0123456789") + 1), '.');
  return number.size() > 1 && to_integer(number[1]).value_or(0) >= 11;
}

std::string find_libpython(const std::string& interpreter) {
  char real[PATH_MAX];
  if (realpath(interpreter.c_str(), real) == nullptr || !is_elf(real)) return {};  // pyenv's shims are scripts
  const fs::path prefix = fs::path(real).parent_path().parent_path();
  const std::string version = python_version(interpreter);
  // In free-threaded and debug builds, objects do not have the stable ABI's layout.
  if (version.empty() || version.find_first_not_of("0123456789.") != std::string::npos) return {};
  if (std::string found = library_in(prefix, version); !found.empty()) return found;
  const std::string home = home_in_config(interpreter);
  return home.empty() ? "" : library_in(fs::path(home).parent_path(), version);
}

PythonPlan plan_python(const std::string& python, const std::string& search_path, const std::string& cwd) {
  PythonPlan plan;
  if (python.find('/') != std::string::npos) {
    plan.interpreter = python.front() == '/' ? python : cwd + "/" + python;
  } else {
    for (const std::string& folder : split(search_path, ':'))
      if (!folder.empty() && is_program(folder + "/" + python)) {
        plan.interpreter = folder + "/" + python;
        break;
      }
  }
  if (plan.interpreter.empty() || !is_program(plan.interpreter))
    throw Error(Code::unavailable, "", "there is no Python interpreter " + python + " on this host",
                "install it there, or name another one with --python");
  plan.libpython = find_libpython(plan.interpreter);
  plan.version = python_version(plan.interpreter);
  return plan;
}

}  // namespace hvd::rank
