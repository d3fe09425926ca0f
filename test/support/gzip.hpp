// delta tests: files of test/reference that are kept compressed.
#pragma once

#include <zlib.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace delta::test {

/// What `gzip -dc FILE` prints. Throws std::runtime_error where that is no whole file.
inline std::string read_gzip(const std::string& file) {
  const gzFile in = gzopen(file.c_str(), "rb");
  if (in == nullptr) throw std::runtime_error(file + ": can't be opened");
  std::string text;
  std::array<char, 1 << 16> part{};
  int count = 0;
  while ((count = gzread(in, part.data(), part.size())) > 0)
    text.append(part.data(), static_cast<std::size_t>(count));
  if (gzclose(in) != Z_OK || count < 0) throw std::runtime_error(file + ": is damaged, or cut off");
  return text;
}

}  // namespace delta::test
