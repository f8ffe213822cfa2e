/// @file results.h — the file that hvd.run() reads when the job has ended.
#pragma once
#include <optional>
#include <string>

#include "launcher/control/session.h"

namespace hvd::launcher {

/// Appends a record for each rank that gave a result: u32 rank, u32 zero, u64 length, bytes (little endian).  After a
/// failure one more with rank 0xffffffff, whose bytes are the first cause as JSON (death.h).
void write_results(const std::string& path, const std::vector<RankState>& ranks,
                   const std::optional<wire::DeathRecord>& first_cause);

}  // namespace hvd::launcher
