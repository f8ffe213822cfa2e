/// @file differences.h — what differs between the hosts of a job: packages, builds, system software.  Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// Versions of Python packages, by name.
using Packages = std::map<std::string, std::string>;

/// The packages of a host; empty: it did not tell.
Packages packages_of(const Answers& answers);
/// The packages that most hosts have, in the most frequent version.  In a tie, this host's version counts.
Packages usual_packages(const std::vector<Answers>& all);

struct PackageDifference {
  std::string name, version, usual;  ///< an empty version: the package is missing
};
/// Sorted by name.  Empty for a host that did not tell its packages.
std::vector<PackageDifference> package_differences(const Answers& answers, const Packages& usual);

/// One problem for each difference; none is fatal.  All package differences of a host are one problem, which names a
/// few of them.
std::vector<Problem> find_differences(const std::vector<Answers>& all, const std::string& python);

}  // namespace hvd::launcher
