// delta executor: tables for people.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace delta::executor {

using text_row = std::vector<std::string>;

/// One line per row, columns aligned: the first `names` to the left, figures to the right. All rows
/// have as many cells as the first.
void print_aligned(std::ostream&, std::span<const text_row> rows, std::size_t names);

}  // namespace delta::executor
