// Files of data sets as tests make and break them, and the line that refuses them.
#pragma once

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_file.hpp"
#include "temporary_folder.hpp"

namespace delta::test {

using raw = std::vector<std::uint8_t>;

inline raw zipped(const raw& plain) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  raw result(deflateBound(&stream, uLong(plain.size())) + 32);
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = uInt(plain.size());
  stream.next_out = result.data();
  stream.avail_out = uInt(result.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

inline raw with(raw file, std::size_t at, std::uint8_t value) {
  file.at(at) = value;
  return file;
}
inline raw plus(raw file, std::uint8_t value) {
  file.push_back(value);
  return file;
}
inline raw first(const raw& file, std::size_t size) {
  return {file.begin(), file.begin() + std::ptrdiff_t(size)};
}

/// The data_error's line without the folder it happened in.
inline std::string why_not(auto&& read, const temporary_folder& folder) {
  try {
    read();
  } catch (const executor::data_error& error) {
    std::string line = error.what();
    CHECK_MESSAGE(line.find('\n') == std::string::npos, line);
    CHECK(line.find(error.file().string()) == 0);
    const std::string prefix = folder.path().string() + "/";
    return line.starts_with(prefix) ? line.substr(prefix.size()) : line;
  }
  return "no error";
}

}  // namespace delta::test
