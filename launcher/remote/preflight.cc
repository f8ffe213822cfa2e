#include "launcher/remote/preflight.h"

#include <chrono>
#include <string_view>

#include "base/format.h"
#include "base/process/capture.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr std::string_view mark = "hvdrun preflight: ", between = " | ";
constexpr const char* tell_python_version = "import sys;print('%d.%d'%sys.version_info[:2])";

std::string first_line(const std::vector<std::string>& command) {
  const CaptureResult done = capture(command, "", 5s);
  return done.ok() ? std::string(trim(split(done.out, '\n')[0])) : std::string();
}

/// @param what  may contain $v, which the shell replaces
std::string fail(const std::string& what, const std::string& hint) {
  return formatted("hvd_fail \"{}\" {}", what, shell_quote(hint));
}

/// Defines a shell function that prints the fault and ends the script.
constexpr std::string_view fail_function =
    "hvd_fail() { printf 'hvdrun preflight: %s | %s\\n' \"$1\" \"$2\" >&2; exit 4; }\n";

/// A shell function that ends the script if another user could have put a program there.  The function checks the
/// owners and modes of the path's folders, with and without symbolic links.  hvdrank looks at groups
/// (base/files/trust.h); this function checks hvdrank before it runs.
///
/// All hosts wait for the slowest, and each program that the shell starts takes a millisecond.  So the shell itself
/// finds the real path and its user.  The owner of / is trusted too.  Only the first line counts as /: a later path may
/// end with a blank and a slash.
std::string trust_function(const std::vector<uid_t>& software_owners) {
  std::string known;
  for (const uid_t uid : software_owners) known += formatted(" {}", uid);
  const std::string fault = fail("has a $n that others could have put there",
                                 "look at the owners and modes of its path there, or --allow-writable");
  return R"sh(hvd_trust() {
  [ -e "$1" ] || return 0
  n=$1; set --
  p=$([ ! -L "$n" ] && CDPATH= cd -P -- "${n%/*}/" && pwd -P) && p=$p/${n##*/} || p=$(readlink -f -- "$n")
  for q in "$n" "$p"; do
    while [ -n "$q" ]; do set -- "$@" "$q"; q=${q%/*}; done
    [ "$n" != "$p" ] || break
  done
  t=
  while read -r k r u l; do [ "$k" != Uid: ] || { t=$u; break; }; done </proc/self/status
  t="0 ${t:-$(id -u)})sh" +
         known + R"sh("
  f=1
  while read -r m l u r; do
    case $f$r in 1*' /') t="$t $u"; f=; continue;; esac
    f=
    case " $t " in *" $u "*) ;; *) m=foreign;; esac
    case $m in
      d????????[tT]*) ;;
      foreign | ????????w*) )sh" +
         fault + R"sh( ;;
    esac
  done <<END_OF_LIST
$(LC_ALL=C ls -Lnd -- / "$@")
END_OF_LIST
}
)sh";
}

/// Checks hvdrank's version.
std::string version_check() {
  return "v=$(\"$hvd_rank\" --version 2>/dev/null </dev/null)\ncase $v in \"hvdrank " HVD_VERSION "\" | \"\") ;; *) " +
         fail("has $v, this is hvdrun " HVD_VERSION, "install the same wheel on all hosts") + ";; esac\n";
}

/// Makes a private folder, and checks hvdrank's version by the same call.  A host without room for a folder goes on
/// without.  The host daemon removes the folder; the shell does if the daemon has not.
std::string folder_and_version_check() {
  return "unset HVD_FOLDER\numask u=rwx\nv=$(\"$hvd_rank\" --folder $$ </dev/null)\ncase $v in\n\"hvdrank " HVD_VERSION
         " /\"*) t=${v#\"hvdrank " HVD_VERSION
         " \"}\nTMPDIR=$t HVD_FOLDER=$t\nexport TMPDIR HVD_FOLDER\n"
         "trap '[ ! -d \"$t\" ] || HVD_JOB_KEYS= \"$hvd_rank\" --remove-folder \"$t\" </dev/null' EXIT\n"
         "trap 'exit 143' HUP INT TERM ;;\n*) " +
         version_check() + ";;\nesac\n";
}

}  // namespace

std::string trust_script(const std::vector<std::string>& programs, const std::vector<uid_t>& software_owners) {
  std::string script = std::string(fail_function) + trust_function(software_owners);
  for (const std::string& program : programs)
    if (!program.empty()) script += "hvd_trust " + shell_quote(program) + "\n";
  return script;
}

Preflight look_here(const std::string& rank_program, const std::string& mpirun, const std::string& python,
                    bool pickled) {
  Preflight here{rank_program, mpirun, mpirun.empty() ? "" : first_line({mpirun, "--version"}), {}, {}};
  if (python.starts_with('/')) here.python = python;
  if (pickled && !here.python.empty()) here.python_version = first_line({python, "-ISc", tell_python_version});
  return here;
}

std::string preflight_script(const Preflight& here, bool with_folder) {
  std::string script(fail_function);
  const std::string rank = shell_quote(here.rank_program);
  script += "hvd_rank=" + rank + "\n";
  if (here.software_owners)
    script += trust_script({here.rank_program, here.mpirun, here.python}, *here.software_owners);
  script += "[ -x " + rank + " ] || { v=" + rank + "; " +
            fail("has no $v", "install hvdrun there, in the same folder") + "; }\n";
  script += with_folder ? folder_and_version_check() : version_check();
  if (here.mpirun_version.find("Open MPI") != std::string::npos)
    script += formatted(
        "v=$({} --version 2>/dev/null </dev/null | head -n 1)\ncase $v in {}) ;; *'Open MPI'*) h={}; {};; esac\n",
        shell_quote(here.mpirun), shell_quote(here.mpirun_version), shell_quote(here.mpirun_version),
        fail("has $v, this host has $h", "install the same Open MPI on all hosts, or name one with --mpirun PATH"));
  if (!here.python.empty()) {
    const std::string python = shell_quote(here.python);
    script += "[ -x " + python + " ] || { v=" + python + "; " +
              fail("has no Python $v",
                   "install it there under the same path, or name one that all hosts have: --python PATH") +
              "; }\n";
    if (!here.python_version.empty())
      script += formatted("v=$({} -ISc {} 2>/dev/null </dev/null)\ncase $v in {} | \"\") ;; *) {};; esac\n", python,
                          shell_quote(tell_python_version), here.python_version,
                          fail("has Python $v under that path, this host has " + here.python_version,
                               "a .pkl needs the same version on all hosts: --python PATH"));
  }
  script += "[ -w /dev/shm ] || " +
            fail("has no /dev/shm that can be written to", "mount -t tmpfs tmpfs /dev/shm there") + "\n";
  return script;
}

std::optional<Error> preflight_problem(const std::string& host, const std::string& log) {
  for (const std::string& line : split(log, '\n')) {
    const std::size_t begin = line.find(mark);
    if (begin == std::string::npos) continue;
    const std::string text = line.substr(begin + mark.size());
    const std::size_t cut = text.rfind(between);
    if (cut == std::string::npos) continue;
    return Error(Code::unavailable, "", host + " " + text.substr(0, cut), text.substr(cut + between.size()));
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
