/// @file random.h — random bytes from the kernel, for keys and for names that other users cannot guess.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace hvd {

/// The letters of random_letters().  Each letter has five random bits.
inline constexpr std::string_view random_alphabet = "abcdefghijklmnopqrstuvwxyz234567";

/// Fills @p bytes by getrandom(2).  Throws Error{unavailable} if the kernel returns an error.
void fill_randomly(std::span<std::byte> bytes);

/// @p count letters of random_alphabet.  Throws as fill_randomly() does.
std::string random_letters(std::size_t count);

}  // namespace hvd
