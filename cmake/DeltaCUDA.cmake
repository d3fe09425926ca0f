# Decides whether the CUDA executor is built, by DELTA_CUDA, and says so in one line. Sets
# DELTA_HAS_CUDA; with it CUDA is a language, CUDAToolkit is found, and cuDNN where there is one.
set(delta_cuda_default AUTO)
if(NOT "$ENV{DELTA_CUDA}" STREQUAL "")
  set(delta_cuda_default $ENV{DELTA_CUDA})
endif()
set(DELTA_CUDA ${delta_cuda_default} CACHE STRING
    "The CUDA executor: AUTO (built where a toolkit is found and a GPU answers), ON (an error \
where there is no toolkit), OFF")
set_property(CACHE DELTA_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DELTA_CUDNN_ROOT "" CACHE PATH "Folder of cuDNN, with include/ and lib/, where it is not found")
set(DELTA_HAS_CUDA OFF)

if(NOT DELTA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "DELTA_CUDA is ${DELTA_CUDA}; allowed: AUTO, ON, OFF")
elseif(DELTA_CUDA STREQUAL "OFF")
  message(STATUS "delta: DELTA_CUDA is OFF: the CUDA executor is left out")
  return()
elseif(DELTA_SANITIZE)
  if(DELTA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "delta: DELTA_CUDA=ON with DELTA_SANITIZE=${DELTA_SANITIZE}: the sanitizers "
      "do not know CUDA's memory; leave one of them out")
  endif()
  message(STATUS "delta: sanitizers are on: the CUDA executor is left out")
  return()
endif()

execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE gpus ERROR_QUIET RESULT_VARIABLE failed)
set(gpu_answers OFF)
if(NOT failed AND gpus MATCHES "GPU 0")
  set(gpu_answers ON)
endif()
# nvcc takes more than a minute: nobody waits for what could not run.
if(DELTA_CUDA STREQUAL "AUTO" AND NOT gpu_answers)
  message(STATUS "delta: no GPU answers: the CUDA executor is left out; DELTA_CUDA=ON builds it")
  return()
endif()

# Debian's and NVIDIA's packages don't put nvcc on the PATH.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(delta_nvcc nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda
               PATH_SUFFIXES bin NO_CACHE)
  if(delta_nvcc)
    set(ENV{CUDACXX} ${delta_nvcc})
  endif()
endif()
# For the GPU of this machine. Without one nothing that is built here will run here, and one architecture
# shows that it compiles; what is to be carried to a GPU has its list in the preset cuda-portable.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  if(gpu_answers)
    set(CMAKE_CUDA_ARCHITECTURES native CACHE STRING "What nvcc compiles for")
  else()
    set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "What nvcc compiles for")
  endif()
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(delta_cudart CUDA::cudart)
if(DELTA_PORTABLE)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(delta_cudart CUDA::cudart_static)
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(DELTA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "delta: DELTA_CUDA is ON, but there is no CUDA toolkit that works; set "
      "CUDACXX to its nvcc, or DELTA_CUDA to AUTO or OFF")
  endif()
  message(STATUS "delta: no CUDA toolkit: the CUDA executor is left out")
  return()
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
find_package(cuDNN 9 QUIET)
set(DELTA_HAS_CUDA ON)

set(delta_cudnn_text "without cuDNN: only our own kernels")
if(cuDNN_FOUND)
  set(delta_cudnn_text "cuDNN ${cuDNN_VERSION} from ${cuDNN_LIBRARY}")
endif()
list(JOIN CMAKE_CUDA_ARCHITECTURES " " delta_architectures)
message(STATUS "delta: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, ${delta_cudnn_text}, architectures "
  "${delta_architectures}")
