#include "launcher/start/remote_shell.h"

#include <unistd.h>

#include <chrono>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/process/capture.h"
#include "base/text.h"
#include "launcher/options/settings.h"
#include "launcher/process/find_program.h"

namespace hvd::launcher {

namespace {

constexpr auto munge_limit = std::chrono::seconds(10);
constexpr const char* no_munge_hint = "is munged running? srun carries a shell's input in clear";

}  // namespace

std::string remote_script(const std::string& preflight, const std::string& host, const std::string& cwd,
                          const std::string& job_keys, const std::vector<std::string>& daemon) {
  // The daemon's command is quoted shell text.  The daemon must not read this script, so its stdin is /dev/null.
  return preflight + "HVD_JOB_KEYS=" + job_keys + (host.empty() ? "" : "\nHVD_HOST=" + shell_quote(host)) +
         "\nexport HVD_JOB_KEYS HVD_HOST\ncd " + shell_quote(cwd) + " 2>/dev/null || cd\n{ " + join(daemon, " ") +
         "\n} </dev/null\n";
}

std::string keys_text(const std::string& job_keys, bool sealed) {
  if (!sealed) return shell_quote(job_keys);
  const char* const path = environment_value("PATH");
  const std::string munge = find_program("munge", absolute_only(path ? path : ""));
  if (munge.empty()) throw Error(Code::unavailable, "munge", "is not in PATH", no_munge_hint);
  look_at(munge, PathUse::file, {.anyone = true}).need_trust(munge);  // a user of its own may own a cluster's software
  const CaptureResult done =
      capture({munge, formatted("--restrict-uid={}", ::getuid()), "--ttl=300"}, job_keys, munge_limit);
  if (!done.ok())
    throw Error(Code::unavailable, "munge", "cannot seal the job's key: " + std::string(trim(done.err)), no_munge_hint);
  return unseal_text(done.out);
}

bool needs_seal(const std::vector<std::string>& launch_agent) {
  return !launch_agent.empty() && launch_agent[0] == "srun";
}

std::string unseal_text(const std::string& credential) {
  return "\"$(unmunge --metadata=/dev/null <<'END_OF_CREDENTIAL'\n" + std::string(trim(credential)) +
         "\nEND_OF_CREDENTIAL\n)\"";
}

std::vector<std::string> shell_on(const std::vector<std::string>& words, const std::string& host) {
  std::vector<std::string> out;
  bool named = false;
  for (std::string w : words) {
    for (std::size_t at = 0; (at = w.find("{host}", at)) != std::string::npos; at += host.size(), named = true)
      w.replace(at, 6, host);
    out.push_back(std::move(w));
  }
  if (!named) out.insert(out.end(), {"--", host});
  out.emplace_back("/bin/sh");
  return out;
}

std::vector<std::string> ssh_command(const std::string& program, const std::string& port, const std::string& identity,
                                     int connect_timeout_seconds) {
  std::vector<std::string> words = shell_words(program, "HVD_SSH");
  for (const char* w : {"-x", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o"}) words.emplace_back(w);
  words.push_back(formatted("ConnectTimeout={}", connect_timeout_seconds));
  if (!port.empty()) words.insert(words.end(), {"-p", port});
  if (!identity.empty()) words.insert(words.end(), {"-i", identity});
  return words;
}

}  // namespace hvd::launcher
