/// Placement, environment, and the step from hvdrank to Python.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../temp_folder.h"
#include "base/error.h"
#include "rank/diagnostics/death/death_facts.h"
#include "rank/diagnostics/stacks/stack_capture.h"
#include "rank/launch/binding.h"
#include "rank/launch/rank_environment.h"
#include "rank/python/python_plan.h"

using namespace hvd;
using namespace hvd::rank;
namespace fs = std::filesystem;

namespace {

struct Folder : test::TempFolder {
  fs::path file(const std::string& name, const std::string& text = "", int mode = 0755) const {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
    chmod((root / name).c_str(), static_cast<mode_t>(mode));
    return root / name;
  }
};

const std::string elf =
    "\x7f"
    "ELF...";

}  // namespace

TEST_CASE("binding: the plan of hvdrun, else a share; --no-bind leaves the mask") {
  wire::RankManifest m;
  m.placement.planned = true;
  m.placement.cpus = {3, 4};
  CHECK(plan_binding(m, {}).cpus == std::vector<int>{3, 4});
  CHECK(plan_binding(m, {}).threads == 2);
  m.placement.threads = 7;
  CHECK(plan_binding(m, {}).threads == 7);
  m.placement.bind = false;
  CHECK(plan_binding(m, {}).cpus.empty());
  m.placement = {};
  m.placement.gpu_mode = "none";
  m.local_size = 4096;
  CHECK(plan_binding(m, {}).cpus.empty());
  CHECK(plan_binding(m, {}).threads == 1);
  CHECK(plan_binding(m, {}).visible_gpus == "");
}

TEST_CASE("environment: the planned GPU") {
  wire::RankManifest m;
  m.env["CUDA_VISIBLE_DEVICES"] = "0,1";
  Binding binding{{}, 2, "GPU-1", "GPU-1"};
  Environment env = rank_environment(m, {}, binding);
  CHECK(env["CUDA_VISIBLE_DEVICES"] == "GPU-1");
  CHECK(env["HVD_GPU"] == "GPU-1");
  CHECK(env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID");
  binding.visible_gpus.reset(), binding.gpu.clear();
  env = rank_environment(m, {}, binding);
  CHECK(env["CUDA_VISIBLE_DEVICES"] == "0,1");
  CHECK(env.count("HVD_GPU") + env.count("CUDA_DEVICE_ORDER") == 0);
}

TEST_CASE("environment: the launcher's variables win, the job's secrets never get through") {
  wire::RankManifest m;
  m.job = "j";
  m.rank = 1;
  m.size = 2;
  m.host = "h";
  m.env = {{"PATH", "/bin"},      {"OMPI_COMM_WORLD_RANK", "9"}, {"HVD_JOB_KEYS", "secret"},
           {"HVD_JOB_DIR", "/x"}, {"OMP_NUM_THREADS", "3"},      {"HVD_TIMELINE_COLLECT", "1"}};
  const Environment mine{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}, {"HVD_JOB_KEYS", "secret"}, {"HOME", "/no"}};
  const Environment env = rank_environment(m, mine, {{}, 8, "", {}});
  CHECK(env.at("OMPI_COMM_WORLD_RANK") == "1");
  CHECK(env.at("PMIX_RANK") == "1");
  CHECK(env.at("OMP_NUM_THREADS") == "3");
  CHECK(env.at("HVD_RANK") == "1");
  for (const char* name : {"HVD_JOB_KEYS", "HVD_JOB_DIR", "HOME", "HVD_TIMELINE_COLLECT", "PYTHONUNBUFFERED"})
    CHECK(env.count(name) == 0);
}

TEST_CASE("environment: what hvdrun told its mpirun alone stays there") {
  wire::RankManifest m;
  m.env = {{"OMPI_MCA_plm", "rsh"}, {"OMPI_MCA_pml", "ob1"}};
  const Environment mine{{"HVD_MPIRUN_ONLY", "HWLOC_COMPONENTS OMPI_MCA_plm OMPI_MCA_ess"},
                         {"HWLOC_COMPONENTS", "-linuxio"},
                         {"OMPI_MCA_plm", "^slurm"},
                         {"OMPI_MCA_ess", "^tool"},
                         {"OMPI_MCA_pml", "cm"},
                         {"OMPI_COMM_WORLD_RANK", "0"}};
  const Environment env = rank_environment(m, mine, {{}, 8, "", {}});
  CHECK(env.at("OMPI_MCA_plm") == "rsh");  // the user's
  CHECK(!env.contains("OMPI_MCA_ess"));
  CHECK(!env.contains("HWLOC_COMPONENTS"));
  CHECK(!env.contains("HVD_MPIRUN_ONLY"));
  CHECK(env.at("OMPI_MCA_pml") == "cm");
  CHECK(env.at("OMPI_COMM_WORLD_RANK") == "0");
}

TEST_CASE("python: found by path, by name, relative to the working folder; else it says so") {
  const Folder f;
  f.file("bin/python3", "#!/bin/sh\n");
  CHECK(plan_python((f.root / "bin/python3").string(), "", "/").interpreter == f.root / "bin/python3");
  CHECK(plan_python("python3", "/nowhere:" + (f.root / "bin").string(), "/").interpreter == f.root / "bin/python3");
  CHECK(plan_python("bin/python3", "", f.root.string()).interpreter == f.root / "bin/python3");
  CHECK(plan_python("bin/python3", "", f.root.string()).libpython.empty());
  CHECK_THROWS_AS(plan_python("python9", "/bin", "/"), Error);
  CHECK_THROWS_AS(plan_python(f.root.string(), "/bin", "/"), Error);
}

TEST_CASE("libpython: beside the interpreter that a venv's link leads to") {
  const Folder f;
  const fs::path real = f.file("base/bin/python3.12", elf);
  const std::string library = f.file("base/lib/libpython3.12.so.1.0");
  fs::create_directories(f.root / "venv/bin");
  fs::create_symlink(real, f.root / "venv/bin/python");
  CHECK(find_libpython((f.root / "venv/bin/python").string()) == library);
  f.file("base/lib/libpython3.11.so.1.0");
  CHECK(find_libpython(real.string()) == library);
}

TEST_CASE("libpython: a copied venv says its version and home; a bare python3 has only one library") {
  const Folder f;
  f.file("copy/bin/python", elf);
  f.file("copy/pyvenv.cfg", "home = " + (f.root / "base/bin").string() + "\nversion = 3.10.4\n");
  const std::string library = f.file("base/lib/libpython3.10.so.1.0");
  CHECK(find_libpython((f.root / "copy/bin/python").string()) == library);
  f.file("base/bin/python3", elf);
  CHECK(find_libpython((f.root / "base/bin/python3").string()) == library);
  f.file("base/lib/libpython3.11.so.1.0");
  CHECK(find_libpython((f.root / "base/bin/python3").string()).empty());
}

TEST_CASE("libpython: none for scripts and for builds whose objects are laid out otherwise") {
  const Folder f;
  f.file("p/lib/libpython3.13.so.1.0");
  f.file("p/lib/libpython3.13t.so.1.0");
  CHECK(find_libpython(f.file("p/bin/python3.13", "#!/bin/sh\n").string()).empty());
  CHECK(find_libpython(f.file("p/bin/python3.13t", elf).string()).empty());
  CHECK(find_libpython("/nonexistent/python3.13").empty());
}

TEST_CASE("death facts: core files, shared memory, the GPU's driver") {
  CHECK(core_place("core", "/work") == "its core file is in /work");
  CHECK(core_place("/var/cores/core.%p", "/work") == "its core file is in /var/cores/");
  CHECK(core_place("|/usr/share/apport/apport %p", "/work") == "its core file went to /usr/share/apport/apport");
  CHECK(full_shared_memory("/nowhere").empty());
  const std::string record =
      "6,1234,500,-;NVRM: Xid (PCI:0000:34:00): 79, pid=1, GPU has fallen off the bus.\n SUBSYSTEM=x\n";
  CHECK(xid_in(record, "0000:34:00.0", 400) == "Xid (PCI:0000:34:00): 79, pid=1, GPU has fallen off the bus.");
  CHECK(xid_in(record, "0000:34:00.0", 501).empty());
  CHECK(xid_in(record, "0000:35:00.0", 0).empty());
  CHECK(xid_in("garbage", "0000:35:00.0", 0).empty());
}

TEST_CASE("death facts: what the last words and limits tell") {
  CHECK(thrown_exception({"a", "terminate called after throwing an instance of 'std::runtime_error'",
                          "  what():  no such layer"}) == "C++ exception std::runtime_error: no such layer");
  CHECK(fatal_python_error({"Fatal Python error: a: b", "Python runtime state: preinitialized", ""}) ==
        "Fatal Python error: a: b");
  CHECK(fatal_python_error({"Timeout (0:00:01)!", "Thread 0x00007f (most recent call first):"}) ==
        "Timeout (0:00:01)!");
  CHECK(fatal_python_error({"a"}).empty());
  CHECK(thrown_exception({"  what():  of somebody's own"}).empty());
  CHECK(mpi_abort({"----", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"}) == "it called MPI_Abort");
  CHECK(mpi_abort({"a"}).empty());
  CHECK(syntax_error_traceback(
            {"a", "  File \"t.py\", line 1", "    def f(:", "          ^", "SyntaxError: invalid syntax"}) ==
        "Traceback (most recent call last):\n  File \"t.py\", line 1\n    def f(:\n          ^\nSyntaxError: invalid "
        "syntax\n");
  CHECK(syntax_error_traceback({"SyntaxError: told by the program"}).empty());
  CHECK(syntax_error_traceback({"  File \"t.py\", line 1", "KeyError: 1"}).empty());
  wire::DeathRecord r;
  r.cause = wire::Cause::signalled;
  r.code = SIGXFSZ;
  CHECK(reached_limit(r) == "a file would have become larger than the limit (ulimit -f)");
  r.code = SIGKILL;
  CHECK(reached_limit(r).empty());
  CHECK(full_folders("/nowhere", "").find("nowhere") == std::string::npos);
}

TEST_CASE("stacks: where a fatal signal came, the last of several pictures") {
  CHECK(fatal_place("").empty());
  CHECK(fatal_place("Fatal Python error: Aborted\n").empty());
  CHECK(fatal_place("Current thread 0x1 (most recent call first):\n  File \"old.py\", line 1 in f\n"
                    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
                    "  File \"/a b/train.py\", line 12 in step\n  File \"train.py\", line 30 in <module>\n") ==
        "in /a b/train.py:12 (step)");
  const std::string main_thread = "Thread 0x1 (most recent call first):\n  File \"train.py\", line 12 in step\n",
                    other = "Thread 0x2 (most recent call first):\n  File \"io.py\", line 5 in wait\n",
                    fatal = "Fatal Python error: Aborted\n\n";
  CHECK(fatal_place(fatal + other + "\n" + main_thread) == "its main thread was in train.py:12 (step)");
  CHECK(fatal_place(fatal + "Current t" + other.substr(1) + "\n" + main_thread) == "in io.py:5 (wait)");
  CHECK(fatal_place(fatal + "Current thread 0x1 (most recent call first):\n  File \"<hvdrun>\", line 7 in waited\n"
                            "  File \"/v/lib/python3.11/site-packages/torch/x.py\", line 9 in all_reduce\n"
                            "  File \"train.py\", line 12 in step\n") ==
        "in /v/lib/python3.11/site-packages/torch/x.py:9 (all_reduce), called from train.py:12 (step)");
  CHECK(fatal_place(fatal + other + "\nCurrent t" + main_thread.substr(1)) == "in train.py:12 (step)");
  CHECK(fatal_place(fatal + "Current thread 0x2 (most recent call first):\n  <no Python frame>\n\n" + main_thread) ==
        "its main thread was in train.py:12 (step)");
  for (const char* cut : {"  File \"", "  File \"x", "  File \"x\"", "  File \"x\", line", "  File \"x\", line 3"})
    CHECK(fatal_place("Fatal Python error: x\n" + std::string(cut)).empty());
}

TEST_CASE("python: which versions know -P") {
  for (const char* version : {"3.11", "3.13t", "3.20"}) CHECK(knows_safe_path(version));
  for (const char* version : {"", "3", "3.9", "3.10", "3.10d"}) CHECK(!knows_safe_path(version));
}
