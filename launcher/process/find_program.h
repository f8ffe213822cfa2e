/// @file find_program.h — finds a program in folders.
#pragma once
#include <filesystem>
#include <string>

namespace hvd::launcher {

/// True for an executable file.
bool is_program(const std::filesystem::path& path);

/// First executable file called @p name in the folders of @p search_path; empty when there is none.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace hvd::launcher
