#include "launcher/remote/preflight.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../temp_folder.h"
#include "base/process/capture.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

/// A host in a folder: its programs print a given text.
class Host {
 public:
  std::string program(const char* name, const std::string& prints, int code = 0) const {
    const fs::path path = folder_.root / name;
    std::ofstream(path) << "#!/bin/sh\necho '" << prints << "'\nexit " << code << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

 private:
  test::TempFolder folder_;
};

/// Returns the error of the job on a host that runs the script; empty: it goes on.
std::string verdict(const Preflight& here) {
  const CaptureResult done = capture({"/bin/sh"}, preflight_script(here) + "echo started\n", std::chrono::seconds(20));
  const auto problem = preflight_problem("beta", "Warning: added to known hosts\n" + done.err + "ssh said more\n");
  CHECK((done.out == "started\n") == !problem);
  CHECK(done.code == (problem ? 4 : 0));
  return problem ? std::string(problem->what()) + "; " + problem->hint : "";
}

TEST_CASE("preflight: a program that another user could have put there is not run") {
  if (::geteuid() != 0) return;  // files of several users need root
  constexpr uid_t other = 54321;
  const Host host;
  Preflight here{host.program("hvdrank", "hvdrank " HVD_VERSION), {}, {}, {}, {}, std::vector<uid_t>{}};
  CHECK(verdict(here) == "");
  const fs::path ran = fs::path(here.rank_program).parent_path() / "ran";
  std::ofstream(here.rank_program) << "#!/bin/sh\ntouch " << ran.string() << "\n";
  const std::string refused = "beta has a " + here.rank_program +
                              " that others could have put there; look at the owners and modes of its path there, or "
                              "--allow-writable";
  CHECK(::chown(here.rank_program.c_str(), other, other) == 0);
  CHECK(verdict(here) == refused);
  CHECK(!fs::exists(ran));
  here.software_owners = {other};
  CHECK(verdict(here) == "");
  here.software_owners = std::vector<uid_t>{};
  CHECK(::chown(here.rank_program.c_str(), 0, 0) == 0);
  CHECK(::chmod(ran.parent_path().c_str(), 0777) == 0);
  CHECK(verdict(here) == refused);
  CHECK(::chmod(ran.parent_path().c_str(), 01777) == 0);
  CHECK(verdict(here) == "");
}

TEST_CASE("preflight: what other hosts lack is told in one line, with what to do") {
  const Host host;
  const Preflight good{host.program("hvdrank", "hvdrank " HVD_VERSION),
                       host.program("mpirun", "mpirun (Open MPI) 4.1.4"), "mpirun (Open MPI) 4.1.4",
                       host.program("python", "3.11"), "3.11"};
  CHECK(verdict(good) == "");
  Preflight other = good;
  other.rank_program = "/no/such folder/hvdrank";
  CHECK(verdict(other) == "beta has no /no/such folder/hvdrank; install hvdrun there, in the same folder");
  other.rank_program = host.program("older", "hvdrank 0.0.1");
  CHECK(verdict(other) == "beta has hvdrank 0.0.1, this is hvdrun " HVD_VERSION
                          "; install the same wheel on all hosts");
  other = good;
  other.mpirun = host.program("mpirun5", "mpirun (Open MPI) 5.0.11");
  CHECK(verdict(other) ==
        "beta has mpirun (Open MPI) 5.0.11, this host has mpirun (Open MPI) 4.1.4; install the same Open MPI on all "
        "hosts, or name one with --mpirun PATH");
  other = good;
  other.python = "/opt/it's/python";
  CHECK(verdict(other) ==
        "beta has no Python /opt/it's/python; install it there under the same path, or name one that all hosts have: "
        "--python PATH");
  other.python = host.program("python3.9", "3.9");
  CHECK(verdict(other) ==
        "beta has Python 3.9 under that path, this host has 3.11; a .pkl needs the same version on all hosts: --python "
        "PATH");
}

TEST_CASE("preflight: a program that does not answer is not blamed") {
  const Host host;
  const std::string broken = host.program("broken", "", 127);
  CHECK(verdict({broken, broken, "mpirun (Open MPI) 4.1.4", broken, "3.11"}) == "");
  CHECK(verdict({broken, "/no/such/mpirun", "mpirun (Open MPI) 4.1.4", "", ""}) == "");
  CHECK(verdict({broken, broken, "", "", ""}) == "");
}

TEST_CASE("preflight: the private folder is removed once, and a host without room for one goes on") {
  const Host host;
  const std::string rank = host.program("hvdrank", "");
  const fs::path at = fs::path(rank).parent_path(), folder = at / "own", calls = at / "calls";
  const auto answers = [&](const std::string& to_folder) {
    std::ofstream(rank) << "#!/bin/sh\necho $1 >>" << calls.string() << "\ncase $1 in --folder) " << to_folder
                        << ";; --remove-folder) rmdir $2;; *) echo hvdrank " HVD_VERSION ";; esac\n";
  };
  const auto run = [&](const std::string& daemon) {
    fs::remove(calls);
    const std::string script = "HVD_FOLDER=/of/another/daemon; export HVD_FOLDER\n" +
                               preflight_script({rank, {}, {}, {}, {}}, true) + "echo ${HVD_FOLDER-none}\n" + daemon;
    const CaptureResult done = capture({"/bin/sh"}, script, std::chrono::seconds(20));
    std::ifstream file(calls);
    CHECK_FALSE(fs::exists(folder));
    return done.out + done.err + std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string makes = "mkdir " + folder.string() + "; echo hvdrank " HVD_VERSION " " + folder.string();
  answers(makes);
  CHECK(run("rmdir $TMPDIR\n") == folder.string() + "\n--folder\n");
  CHECK(run("exit 3\n") == folder.string() + "\n--folder\n--remove-folder\n");
  CHECK(run("kill $$\n") == folder.string() + "\n--folder\n--remove-folder\n");
  answers("echo no room >&2; exit 4");
  CHECK(run("") == "none\nno room\n--folder\n--version\n");
  answers("echo hvdrank 0.0.1 /own");  // an older hvdrank; the version that it tells next counts
  CHECK(run("") == "none\n--folder\n--version\n");
}

TEST_CASE("preflight: only the owner of / is trusted like /, however a path is spelled") {
  if (::geteuid() != 0) return;
  const Host host;
  const fs::path of_another = fs::path(host.program("other", "")).parent_path() / "folder ";
  fs::create_directory(of_another);
  fs::copy_file(host.program("hvdrank", "hvdrank " HVD_VERSION), of_another / "hvdrank");
  const std::string odd = of_another.string() + "//hvdrank";
  CHECK(verdict({odd, {}, {}, {}, {}, std::vector<uid_t>{}}) == "");
  CHECK(::chown(of_another.c_str(), 12345, 12345) == 0);
  CHECK(verdict({odd, {}, {}, {}, {}, std::vector<uid_t>{}}).starts_with("beta has a " + odd));
}

TEST_CASE("preflight: the real path of a program is looked at too") {
  if (::geteuid() != 0) return;
  const Host host, behind;
  const std::string real = behind.program("hvdrank", "hvdrank " HVD_VERSION);
  const fs::path folder = fs::path(host.program("other", "")).parent_path();
  fs::create_directory_symlink(fs::path(real).parent_path(), folder / "linked");
  fs::create_symlink(real, folder / "hvdrank");
  CHECK(::chmod(fs::path(real).parent_path().c_str(), 0777) == 0);
  for (const fs::path& name : {folder / "linked/hvdrank", folder / "hvdrank"}) {
    CAPTURE(name);
    CHECK(verdict({name, {}, {}, {}, {}, std::vector<uid_t>{}}).starts_with("beta has a " + name.string()));
  }
  CHECK(::chmod(fs::path(real).parent_path().c_str(), 0755) == 0);
  for (const fs::path& name : {folder / "linked/hvdrank", folder / "hvdrank"})
    CHECK(verdict({name, {}, {}, {}, {}, std::vector<uid_t>{}}) == "");
}

TEST_CASE("preflight: logs without a verdict have none") {
  CHECK_FALSE(preflight_problem("b", ""));
  CHECK_FALSE(preflight_problem("b", "Permission denied (publickey).\nhvdrun preflight: cut"));
}

TEST_CASE("preflight: this host's own answers") {
  const Host host;
  const Preflight here =
      look_here("/x/hvdrank", host.program("mpirun", "mpirun (Open MPI) 4.1.4\n\nReport bugs"), "python3", true);
  CHECK(here.mpirun_version == "mpirun (Open MPI) 4.1.4");
  CHECK(here.python == "");  // found by each host's own PATH
  CHECK(look_here("/x/hvdrank", "/no/mpirun", host.program("python", "3.11"), true).python_version == "3.11");
  CHECK(look_here("/x/hvdrank", "/no/mpirun", host.program("python", "3.11"), false).python_version == "");
}

}  // namespace
}  // namespace hvd::launcher
