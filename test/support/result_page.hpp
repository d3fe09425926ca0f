// delta tests: a page of docs/results, as text: the cells of its tables, and the digests that it
// and the files beside it carry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "figures.hpp"
#include "temporary_folder.hpp"

namespace delta::test {

/// What is wrong with a page, in a sentence that names it.
struct page_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class result_page {
 public:
  /// `name` is what sentences call it. Throws page_error where there is no such file.
  result_page(const std::filesystem::path& file, std::string name) : name_(std::move(name)) {
    if (!std::filesystem::exists(file)) throw page_error(name_ + ": there is no such file");
    const auto bytes = read_file(file);
    text_.assign(bytes.begin(), bytes.end());
  }

  /// The sixteen digits of `<!-- WHAT: digest DIGITS -->`. Throws page_error unless that is there
  /// once, and whole.
  [[nodiscard]] std::string digest(std::string_view what) const {
    const std::string begin = "<!-- " + std::string(what) + ": digest ", end = " -->";
    const std::string form = "'" + begin + "' and sixteen hexadecimal digits and '" + end + "'";
    const std::size_t at = text_.find(begin);
    if (at == std::string::npos) throw page_error(name_ + ": no line of " + form);
    if (text_.find(begin, at + 1) != std::string::npos)
      throw page_error(name_ + ": several lines of " + form + "; expected: one");
    constexpr std::size_t digits = 16;
    std::string found = text_.substr(at + begin.size(), digits);
    const bool whole = found.size() == digits &&
                       found.find_first_not_of("0123456789abcdef") == std::string::npos &&
                       text_.compare(at + begin.size() + digits, end.size(), end) == 0;
    if (!whole) throw page_error(name_ + ": its line of a digest is damaged; expected: " + form);
    return found;
  }

  /// What stands where the cell does. Throws page_error where the page has no such place.
  [[nodiscard]] std::string printed(const bench::cell& c) const {
    const std::vector<std::vector<std::string>> table = table_of(c.table);
    const std::vector<std::string>& head = table.front();
    const auto column = std::ranges::find(head, c.column);
    const auto row = std::ranges::find_if(table.begin() + 1, table.end(), [&](const auto& line) {
      return line.size() == head.size() && std::equal(c.row.begin(), c.row.end(), line.begin());
    });
    if (column == head.end() || row == table.end())
      throw page_error(name_ + ": no " + where(c) + " in the table '" + c.table + " ...'");
    const auto at = static_cast<std::size_t>(column - head.begin()) + c.right;
    const std::vector<std::string> words = words_of(at < row->size() ? (*row)[at] : "");
    if (c.word >= words.size()) throw page_error(name_ + ": too little in the cell of " + where(c));
    return words[c.word];
  }

  /// "resnet32, `dtr`, 0.5".
  static std::string where(const bench::cell& c) {
    std::string text;
    for (const std::string& name : c.row) text += name + ", ";
    text += c.column;
    if (c.right > 0) text += " and " + std::to_string(c.right) + " to the right";
    return text;
  }

 private:
  static std::string trimmed(const std::string& text) {
    const std::size_t first = text.find_first_not_of(' ');
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(' ') - first + 1);
  }
  /// "| a | b |" in two.
  static std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    for (std::size_t at = 1; at < line.size();) {
      const std::size_t end = std::min(line.find('|', at), line.size());
      cells.push_back(trimmed(line.substr(at, end - at)));
      at = end + 1;
    }
    return cells;
  }
  /// "1.385 (1.36; 1.043) **missed**" in four; "28.7 %" is one.
  static std::vector<std::string> words_of(const std::string& cell) {
    constexpr std::string_view between = " ,;()%*";
    std::vector<std::string> words;
    for (std::size_t at = cell.find_first_not_of(between); at != std::string::npos;) {
      const std::size_t end = std::min(cell.find_first_of(between, at), cell.size());
      words.push_back(cell.substr(at, end - at));
      at = cell.find_first_not_of(between, end);
    }
    return words;
  }
  /// Its headings, then its lines. A first cell that is empty is that of the line above.
  [[nodiscard]] std::vector<std::vector<std::string>> table_of(const std::string& begin) const {
    std::size_t at = text_.find("\n" + begin);
    if (at == std::string::npos)
      throw page_error(name_ + ": no table that begins with '" + begin + "'");
    std::vector<std::vector<std::string>> lines;
    for (++at; at < text_.size() && text_[at] == '|';) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      lines.push_back(cells_of(text_.substr(at, end - at)));
      if (lines.back().front().empty() && lines.size() > 1)
        lines.back().front() = lines[lines.size() - 2].front();
      at = end + 1;
    }
    return lines;
  }

  std::string name_;
  std::string text_;
};

}  // namespace delta::test
