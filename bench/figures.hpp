// delta benchmark: for each page of docs/results whose figures are virtual time, some of its cells
// computed anew. A stale page differs in a cell or in the digest.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "subject.hpp"
#include "train/digest.hpp"

namespace delta::bench {

/// A number or a word of a page's table, as it has to stand there.
struct cell {
  std::string table;             ///< how the line of its headings begins
  std::vector<std::string> row;  ///< the first cells of its line
  std::string column;            ///< its heading, or that of one to the left
  std::size_t right = 0;         ///< so many columns to the right of that one
  std::size_t word = 0;          ///< which of the words in the cell, from 0
  std::string printed;
};

/// What a page must agree with.
struct recomputed {
  std::vector<cell> cells;
  executor::digest exact;  ///< over the unrounded values: ns, counts and bytes
};

/// Traces of a folder, each read when it is asked for first.
class trace_folder {
 public:
  /// `ending`: of its files; ".log.gz" of DTR's traces.
  explicit trace_folder(std::filesystem::path folder, std::string ending = ".log.gz")
      : folder_(std::move(folder)), ending_(std::move(ending)) {}
  /// Of FOLDER/NAME.ending. Throws as read_trace.
  const subject& operator[](const std::string& name);

 private:
  std::filesystem::path folder_;
  std::string ending_;
  std::map<std::string, subject> read_;
};

/// A page, docs/results/NAME.md.
struct page {
  std::string_view name;
  std::string_view command;                    ///< makes it anew
  std::span<const std::string_view> drawings;  ///< of the same run, which carry both of its digests
  bool needs_traces = true;
  bool quick = true;  ///< under a sanitizer, too: seconds, not minutes
  recomputed (*compute)(trace_folder&) = nullptr;
};
/// All pages that are compared with what is computed anew. All together take some four seconds in
/// release.
std::span<const page> pages() noexcept;

/// The line of a page that has the digest of the cells that are computed anew.
std::string digest_line(const executor::digest&);

}  // namespace delta::bench
