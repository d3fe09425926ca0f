#include "cli/text_table.hpp"

#include <algorithm>
#include <ostream>

namespace delta::executor {

void print_aligned(std::ostream& out, std::span<const text_row> rows, std::size_t names) {
  if (rows.empty()) return;
  std::vector<std::size_t> width(rows.front().size());
  for (const text_row& r : rows) {
    for (std::size_t c = 0; c < width.size(); ++c) width[c] = std::max(width[c], r[c].size());
  }
  for (const text_row& r : rows) {
    std::string line;
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::string gap(width[c] - r[c].size(), ' ');
      if (c > 0) line += "  ";
      line += c < names ? r[c] + gap : gap + r[c];
    }
    out << line << '\n';
  }
}

}  // namespace delta::executor
