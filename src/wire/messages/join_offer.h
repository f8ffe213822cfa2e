/// @file join_offer.h — the first message of a host that joins a job by itself: hvdrun join.
#pragma once
#include <string>

namespace hvd::wire {

struct JoinOffer {
  int protocol = 1;     ///< protocol_version of the host
  std::string version;  ///< of its hvdrun
  std::string host;     ///< its name; the job has one host of a name
  int slots = 1;        ///< ranks that it takes
  std::string address;  ///< numeric: where the host has reached hvdrun
};

std::string to_json(const JoinOffer& o);
/// Throws Error{usage}, or Error{mismatch} for another protocol.
JoinOffer join_offer_from_json(const std::string& text);

}  // namespace hvd::wire
