/// @file time_limits.h — limits that the processes between hvdrun and a rank have in common.
#pragma once
#include <chrono>

namespace hvd::rank {

inline constexpr auto first_contact = std::chrono::milliseconds(15000);  ///< to reach hvdrun at all
inline constexpr auto last_chance = std::chrono::milliseconds(1500);     ///< for guards, when their parent has died
inline constexpr auto clean_up_limit = std::chrono::milliseconds(2500);  ///< until no descendant is left

}  // namespace hvd::rank
