# cuDNN 9: cuDNN::cuDNN, cuDNN_VERSION. Looked for in DELTA_CUDNN_ROOT, beside the CUDA toolkit, and
# in the nvidia/cudnn folder that comes with PyTorch's wheel (of the Python that is found first).
find_program(cuDNN_PYTHON python3)
if(cuDNN_PYTHON AND NOT DEFINED cuDNN_WHEEL)
  execute_process(OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    COMMAND ${cuDNN_PYTHON} -c
    "import importlib.util as u; print(u.find_spec('nvidia.cudnn').submodule_search_locations[0])")
  set(cuDNN_WHEEL "${found}" CACHE INTERNAL "cuDNN of a PyTorch wheel")
endif()
set(places HINTS "${DELTA_CUDNN_ROOT}" "$ENV{DELTA_CUDNN_ROOT}" "${CUDAToolkit_LIBRARY_ROOT}"
    "${CUDAToolkit_INCLUDE_DIRS}/.." "${cuDNN_WHEEL}")
find_path(cuDNN_INCLUDE_DIR cudnn_version.h ${places} PATH_SUFFIXES include)
# A wheel has no libcudnn.so. By folder, so that header and library come from one place.
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR ${places}
  PATH_SUFFIXES lib lib64)
mark_as_advanced(cuDNN_PYTHON cuDNN_INCLUDE_DIR cuDNN_LIBRARY)
if(cuDNN_INCLUDE_DIR)
  file(STRINGS ${cuDNN_INCLUDE_DIR}/cudnn_version.h numbers REGEX "define CUDNN_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9]*([0-9]+);[^0-9]*([0-9]+);[^0-9]*([0-9]+).*" "\\1.\\2.\\3"
    cuDNN_VERSION "${numbers}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR
  VERSION_VAR cuDNN_VERSION)
if(cuDNN_FOUND AND NOT TARGET cuDNN::cuDNN)
  add_library(cuDNN::cuDNN UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cuDNN PROPERTIES IMPORTED_LOCATION "${cuDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${cuDNN_INCLUDE_DIR}")
endif()
