/// @file random.h — random bytes from the kernel, fit for keys and for names that nobody may guess.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace hvd {

/// The letters that random_letters() draws from: five bits each.
inline constexpr std::string_view random_alphabet = "abcdefghijklmnopqrstuvwxyz234567";

/// Fills @p bytes by getrandom(2).  Throws Error{unavailable} where the kernel gives none.
void fill_randomly(std::span<std::byte> bytes);

/// @p count letters of random_alphabet.  Throws as fill_randomly() does.
std::string random_letters(std::size_t count);

}  // namespace hvd
