/// @file hang_text.h — the text for incidents: which ranks are missing, where they are, and which ranks wait.  Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/events/job_event.h"
#include "launcher/hang/incidents.h"
#include "launcher/mapping/job_map.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

/// "rank 5 on host2 is in loss.py:88 (forward); 31 ranks have waited 5 s for grad/layer3".  At most five lines about
/// places: missing ranks at the same place share a line.  Then the place of Incident::waiter, the incident's
/// details, and the hosts that do not reach each other.
/// @param ended  ranks that have ended
std::vector<std::string> hang_lines(const Incident& incident, double seconds, const JobMap& map,
                                    const Pictures& pictures, const std::vector<int>& ended);

/// The incident as data, for the job's verdict.
OpenHang hang_data(const Incident& incident, const JobMap& map, const Pictures& pictures);

/// False if all ranks are idle, and no rank is in the user's own code.  A library may then keep the ranks ready for its
/// next call.
bool is_worth_telling(const Incident& incident, const Pictures& pictures);

/// "rank 5 on host2 goes on after 12 s".
std::string closed_line(const Incident& incident, double seconds, const JobMap& map);

/// "31 ranks have waited 120 s for grad/layer3, but not rank 5 on host2": why hvdrun ends the job.
std::string given_up(const Incident& incident, double seconds, const JobMap& map);

/// True if each missing rank does work that ends by itself: such an incident is no hang.
bool all_at_work(const Incident& incident, const Pictures& pictures);

/// "rank 5 on host2 does not hang: --stall-check-shutdown-time-seconds waits, 600 s more at most".
std::string put_off_line(const Incident& incident, double most_seconds, const JobMap& map);

/// "beta gets no answer from gamma", if the network between two hosts is cut.  Empty: no such pair is known.
std::string broken_link(const JobMap& map, const Pictures& pictures);

}  // namespace hvd::launcher
