#include "rank/launch/launch_plan.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "rank/diagnostics/stacks/stack_capture.h"
#include "rank/launch/payload_store.h"
#include "rank/launch/trust_checks.h"
#include "rank/python/python_plan.h"
#include "wire/json.h"
#include "wire/messages/link.h"
#include "wire/messages/meeting_message.h"
#include "wire/shared/recorder_memory.h"
#include "wire/shared/status_page.h"

namespace hvd::rank {

extern const char bootstrap_text[];  ///< the text of bootstrap.py, which embed.py adds to the program

namespace {

namespace fs = std::filesystem;
using wire::PayloadKind;

std::string value_in(const Environment& env, const char* name, const char* otherwise) {
  const auto it = env.find(name);
  return it == env.end() ? otherwise : it->second;
}

/// The rank's HOME if this host has that folder, else the home folder in the host's user database.  The database is
/// read only if necessary, because the name service loads libraries.
std::string home_folder(const Environment& env) {
  std::error_code ec;
  if (const std::string home = value_in(env, "HOME", ""); home.starts_with('/') && fs::is_directory(home, ec))
    return home;
  const passwd* user = getpwuid(getuid());
  return user && user->pw_dir ? user->pw_dir : "/";
}

/// The path of hvdrank-python, which is in this program's folder.
std::string python_host() {
  std::error_code ec;
  const fs::path here = fs::read_symlink("/proc/self/exe", ec);
  const fs::path host = here.parent_path() / "hvdrank-python";
  return access(host.c_str(), X_OK) == 0 ? host.string() : "";
}

/// The bootstrap's parameters as JSON, including the numbers of its inherited descriptors.
std::string boot_json(const wire::RankManifest& m, int link_fd, int payload_fd, const std::string& cwd,
                      const std::string& kept_out) {
  const wire::Json json{{"payload_fd", payload_fd},
                        {"link_fd", link_fd},
                        {"name", m.payload.name},
                        {"sha256", m.payload.sha256},
                        {"host", m.host},
                        {"results", m.collect_results},
                        {"folder", kept_out.empty() ? wire::from_bytes(cwd) : wire::from_bytes("")},
                        {"kept_out", wire::from_bytes(kept_out)}};
  return wire::dump(json);
}

/// The text for `python -c`.  The text reads the bootstrap from a descriptor, so that the process list stays readable.
/// With -c, sys.path begins with the working folder.  The text removes that folder, and the bootstrap decides whether
/// to add it again.
std::string loader(int boot_fd) {
  const std::string fd = std::to_string(boot_fd);
  return "import sys;sys.path[:1]==['']and sys.path.pop(0);import os;exec(compile(os.read(" + fd +
         ",1<<20),'<hvdrank>','exec',0,1),(os.close(" + fd + "),{'__name__':'hvdrank'})[1])";
}

void check_script(const wire::RankManifest& m, const std::string& cwd) {
  const fs::path path = fs::path(cwd) / m.payload.name;
  std::error_code ec;
  if (!fs::exists(path, ec))
    throw Error(Code::usage, "", formatted("{} does not exist on this host (looked in {})", m.payload.name, cwd),
                "copy it there, or run a .pkl, which needs to exist only where hvdrun starts");
}

/// The option for a Python that must not import modules from the payload's folder.  Throws Error{usage} if this version
/// of Python does not have the option.
std::string safe_path_option(const Imports& imports, const std::string& version) {
  if (!knows_safe_path(version))
    throw Error(Code::usage, "", "Python would import from " + imports.folder + ", where others may put modules",
                "use a folder of your own, Python 3.11 or later, or --allow-writable");
  return "-P";
}

void prepare_command(const wire::RankManifest& m, const std::string& search_path, const std::string& cwd,
                     const Imports& imports, ProcessSpec& l) {
  const std::string& name = m.payload.name;
  l.program = name;
  l.argv = {name};
  if (const std::string path = program_path(name, search_path, cwd); m.trusted_only && !path.empty()) {
    need_trusted_program(m, path);
    if (name.find('/') == std::string::npos) l.program = path;  // run the same file that was checked
    if (!imports.kept_out.empty()) l.argv.push_back(safe_path_option(imports, python_version(path)));
  }
  l.argv.insert(l.argv.end(), m.payload.args.begin(), m.payload.args.end());
}

}  // namespace

LaunchPlan plan_launch(const wire::RankManifest& m, const Environment& mine, const Binding& binding, InheritedFds fds) {
  LaunchPlan p;
  ProcessSpec& l = p.launch;
  l.input = m.input;
  l.env = rank_environment(m, mine, binding);
  l.env[wire::link::fd_variable] = std::to_string(fds.link);
  l.cwd = value_in(mine, "HVD_HOST_CWD", m.cwd.c_str());  // the job's folder may have another path on this host
  std::error_code ec;
  if (!fs::is_directory(l.cwd, ec)) l.fallback_cwd = home_folder(l.env);
  l.cpus = binding.cpus;
  l.memory_node = binding.memory_node;
  l.keep_fds = {fds.link};
  if (fds.stack >= 0) {
    l.keep_fds.push_back(fds.stack);
    l.env[stack_fd_variable] = std::to_string(fds.stack);
    l.env[stack_signal_variable] = std::to_string(stack_signal);
  }
  if (fds.status_page >= 0) {
    l.keep_fds.push_back(fds.status_page);
    l.env[wire::status_page_fd_variable] = std::to_string(fds.status_page);
  }
  l.env.erase(wire::recorder_fd_variable);
  if (fds.recorder >= 0) {
    l.keep_fds.push_back(fds.recorder);
    l.env[wire::recorder_fd_variable] = std::to_string(fds.recorder);
  }
  l.env.erase("HVD_KEY_FD");
  if (fds.key >= 0) {
    l.keep_fds.push_back(fds.key);
    l.env["HVD_KEY_FD"] = std::to_string(fds.key);
  }
  l.env.erase(wire::meeting_fd_variable);
  if (fds.meeting >= 0) {
    l.keep_fds.push_back(fds.meeting);
    l.env[wire::meeting_fd_variable] = std::to_string(fds.meeting);
  }
  const std::string cwd = l.fallback_cwd.empty() ? l.cwd : l.fallback_cwd;
  if (m.trusted_only) leave_folder_out(l.env, cwd);
  const std::string path = value_in(l.env, "PATH", "/usr/local/bin:/usr/bin:/bin");
  const Imports imports = imports_of(m, cwd);
  p.kept_out = imports.kept_out;
  if (m.payload.kind == PayloadKind::command) {
    prepare_command(m, path, cwd, imports, l);
    return p;
  }

  const PythonPlan plan = plan_python(m.python.empty() ? "python3" : m.python, path, cwd);
  need_trusted_program(m, plan.interpreter);
  if (!plan.libpython.empty()) need_trusted_program(m, plan.libpython);
  const bool forced_exec = value_in(l.env, "HVD_RANK_EXEC", value_in(mine, "HVD_RANK_EXEC", "").c_str()) == "1";
  const std::string host = forced_exec || plan.libpython.empty() ? "" : python_host();
  p.python = host.empty() ? "exec" : "embedded";
  l.program = host.empty() ? plan.interpreter : host;
  if (!host.empty()) l.env["HVD_LIBPYTHON"] = plan.libpython;

  l.argv = {plan.interpreter};
  if (!imports.kept_out.empty() && m.payload.kind != PayloadKind::pickle)
    l.argv.push_back(safe_path_option(imports, plan.version));
  if (m.payload.kind == PayloadKind::script) {
    check_script(m, cwd);
    l.argv.push_back(m.payload.name);
  } else if (m.payload.kind == PayloadKind::module) {
    l.argv.insert(l.argv.end(), {"-m", m.payload.name});
  } else {
    p.boot = text_in_memory("hvd-bootstrap", bootstrap_text);
    l.keep_fds.insert(l.keep_fds.end(), {p.boot.get(), fds.payload});
    l.env["HVD_BOOT"] = boot_json(m, fds.link, fds.payload, cwd, imports.kept_out);
    l.argv.insert(l.argv.end(), {"-c", loader(p.boot.get())});
  }
  l.argv.insert(l.argv.end(), m.payload.args.begin(), m.payload.args.end());
  return p;
}

}  // namespace hvd::rank
