// delta executor: plans of a step as files, as solvers and scripts write them (docs/traces.md).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "peers/offline_plan.hpp"

namespace delta::executor {

/// Reads a plan: JSON lines, the first with the key "delta_plan". Linear in the file. Throws
/// bad_trace (file, line, what is wrong, what was expected), also when the file can't be read;
/// std::bad_alloc.
offline_plan read_plan(const std::filesystem::path&);

/// A plan from a file's text. `name` is what a bad_trace calls the file.
offline_plan parse_plan(std::string_view text, std::string_view name);

/// The text of a file that parse_plan reads as that plan. O(plan).
std::string text_of(const offline_plan&);

}  // namespace delta::executor
