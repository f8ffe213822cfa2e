#include "launcher/job/unused_options.h"

#include <net/if.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

#include "base/file.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

/// Variables are left out: a profile may set them for other jobs.
const Setting* given_for_this_job(const Settings& settings, const char* id) {
  const Setting* s = settings.find(id);
  return s && s->source != SettingSource::environment && !s->value.empty() ? s : nullptr;
}

/// The first name that no interface of this host has; empty if there is none.  Networks (10.0.0.0/8) are not names.
std::string absent_interface(const std::string& names) {
  for (const std::string& name : split(names, ','))
    if (name.find('/') == std::string::npos && ::if_nametoindex(name.c_str()) == 0) return name;
  return "";
}

}  // namespace

std::vector<std::string> remarks_on_unused(const Job& job) {
  const Settings& settings = job.settings;
  std::vector<std::string> lines;
  if (!settings.has("autotune"))  // a sample configuration names the others beside `enabled: false`
    for (const char* id : {"autotune-log-file", "autotune-warmup-samples", "autotune-steps-per-sample",
                           "autotune-bayes-opt-max-samples"})
      if (const Setting* s = given_for_this_job(settings, id))
        lines.push_back(s->where + " has no effect: nothing is tuned without --autotune");
  const bool has_ssh = !job.map.all_local() || (job.elastic && job.elastic->may_spread);
  if (const Setting* key = given_for_this_job(settings, "ssh-identity-file");
      key && !has_ssh && ::access(key->value.c_str(), R_OK) != 0)
    lines.push_back(key->where + ": '" + key->value + "': " + errno_text(errno) +
                    "; it has no effect: all ranks are on this host, which needs no ssh");
  if (const Setting* nics = given_for_this_job(settings, "network-interfaces"); nics && !has_ssh)
    if (const std::string name = absent_interface(nics->value); !name.empty())
      lines.push_back(nics->where + ": this host has no interface '" + name +
                      "': torch's gloo and NCCL will fail; hvd does not use it, since all ranks are on this host");
  return lines;
}

}  // namespace hvd::launcher
