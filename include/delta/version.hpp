// delta: which version these headers are. CMakeLists.txt reads the numbers from here. Names may
// change with the minor version before 1.0; CHANGELOG.md says which.
#pragma once

#define DELTA_VERSION_MAJOR 0
#define DELTA_VERSION_MINOR 3
#define DELTA_VERSION_PATCH 0

/// One number that grows with every version, for `#if DELTA_VERSION >= 200`.
#define DELTA_VERSION \
  (DELTA_VERSION_MAJOR * 10000 + DELTA_VERSION_MINOR * 100 + DELTA_VERSION_PATCH)
