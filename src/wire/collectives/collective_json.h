/// @file collective_json.h — RankCollectives as a part of a larger JSON text.
#pragma once
#include "wire/collectives/collective_record.h"
#include "wire/json.h"

namespace hvd::wire {

/// Throws Error{usage}, as rank_collectives_from_json().
RankCollectives collectives_of(const Json& json);
Json json_of(const RankCollectives& collectives);

}  // namespace hvd::wire
