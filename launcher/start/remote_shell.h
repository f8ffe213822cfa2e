/// @file remote_shell.h — the shell on another host that starts the host's daemon: its command and its text.
///
/// The job's secret goes to the remote shell's stdin, never into an argument vector or over a plain connection.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// Begins a line that says: the program that connects to a host could not be run.
inline constexpr const char* cannot_run_mark = "hvdrun: cannot run ";

/// The shell text for the remote /bin/sh.  Pure.
/// @param preflight shell text that ends the shell when something is wrong, and sets $hvd_rank
/// @param host      empty: the script runs where HVD_HOST is set
/// @param job_keys  shell text: the quoted secret, or a command that unseals it there
std::string remote_script(const std::string& preflight, const std::string& host, const std::string& cwd,
                          const std::string& job_keys, const std::vector<std::string>& daemon);

/// Shell text for remote_script(): the job's keys as they are, or sealed by munge for a connection without encryption.
/// Throws Error{unavailable} where munge cannot seal them.
std::string keys_text(const std::string& job_keys, bool sealed);

/// True if the shell's standard input crosses the network in clear, as srun's does.
bool needs_seal(const std::vector<std::string>& launch_agent);

/// Shell text that unseals a munge credential.  Only this user can unseal it, once on each host, for five minutes.
/// Pure.
std::string unseal_text(const std::string& credential);

/// The whole command that runs a shell on @p host.  "{host}" in @p words is replaced.  Without "{host}", "--" and the
/// host are appended, as for ssh.  Pure.
std::vector<std::string> shell_on(const std::vector<std::string>& words, const std::string& host);

/// The command line of ssh up to the host.  Pure.
std::vector<std::string> ssh_command(const std::string& program, const std::string& port, const std::string& identity,
                                     int connect_timeout_seconds);

}  // namespace hvd::launcher
