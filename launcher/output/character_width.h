/// @file character_width.h — the columns that a terminal gives to a character.
#pragma once
#include <cstddef>
#include <string_view>

namespace hvd::launcher {

/// The columns of one character in UTF-8: 2 for East Asian letters and emoji, 0 for marks over other characters,
/// else 1. Follows Unicode's East Asian Width.  Where terminals differ, it is the larger number.  Bytes that are no
/// UTF-8 count as one column.
std::size_t character_width(std::string_view character);

}  // namespace hvd::launcher
