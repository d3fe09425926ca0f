// delta benchmark: names of traces by their files.
#pragma once

#include <filesystem>
#include <string>

namespace delta::bench {

/// "unet" of "traces/unet.log.gz".
inline std::string trace_name(const std::filesystem::path& file) {
  auto name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.stem().string();
}

}  // namespace delta::bench
