/// @file character_width.h — the columns that a terminal gives to a character.
#pragma once
#include <cstddef>
#include <string_view>

namespace hvd::launcher {

/// The columns of one character in UTF-8: 0, 1 or 2. East Asian letters and emoji have 2, marks over other characters
/// 0. Follows Unicode's East Asian Width.  Where terminals differ, returns the larger number.  Bytes that are no UTF-8
/// count as one column.
std::size_t character_width(std::string_view character);

}  // namespace hvd::launcher
