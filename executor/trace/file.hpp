// delta executor: traces as files: DTR's and delta's own format, plain or gzip.
#pragma once

#include <filesystem>
#include <string_view>

#include "traces/trace.hpp"

namespace delta::executor {

/// Reads a trace in either format: a first line with the key "delta_trace" says delta's own. Linear
/// in the file. Throws bad_trace (file, line, what is wrong, what was expected), also when the file
/// can't be read; std::bad_alloc.
trace read_trace(const std::filesystem::path&);

/// Reads a trace of DTR. Throws likewise.
trace read_dtr(const std::filesystem::path&);

/// A trace from the text of an uncompressed file, in either format. `name` is what a bad_trace
/// calls the file.
trace parse_trace(std::string_view text, std::string_view name);

/// Writes delta's own format, compressed if the path ends in ".gz"; the file appears whole or not
/// at all. Reading it gives the same trace, provided that its lists and names are in the order of
/// their use, each name once, as in a trace that was read. Throws bad_trace when the trace breaks
/// the rules, and std::runtime_error when the file can't be written.
void write_trace(const trace&, const std::filesystem::path&);

}  // namespace delta::executor
